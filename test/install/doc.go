// Package install builds and looks at what users install: the kustomizations of config, the image and the release folder.
package install
