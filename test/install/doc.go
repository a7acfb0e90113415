// Package install builds and checks what users install: the kustomizations of config, the image and the release folder.
package install
