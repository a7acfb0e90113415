// Command release writes the folder of a release, from which clusterctl, the Cluster API Operator and Helm install:
// components, metadata, ExtensionConfig, chart and programs. Equal input makes equal bytes.
//
//	release -version v1.2.3 -image registry/name -downloads https://host/folder -out out/release
//
// make release writes chart, programs, image, bills of materials and licences into the folder -out before. With -page
// it writes the files and the text of the release page, from the folder of the release.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	pathpkg "path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// provider is how clusterctl calls the product: the folder of all releases.
const provider = "runtime-extension-capi-proxy-patcher"

// Files of a release.
const (
	componentsName = "runtime-extension-components"
	metadataFile   = "metadata.yaml"
)

// namespaceVariable stands in extensionconfig.yaml for the namespace of the installation.
const namespaceVariable = "${CAPI_PROXY_PATCHER_NAMESPACE:=" + mgmt.SystemNamespace + "}"

// krew and krewPlatform are the manifest of krew.
const (
	krew = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: capi-proxy-patcher
spec:
  version: %s
  homepage: https://github.com/capi-proxy-patcher/capi-proxy-patcher
  shortDescription: Plan, explain and check proxy settings of Cluster API nodes
  description: |
    Shows and checks the HTTP proxy settings that capi-proxy-patcher puts on nodes of Cluster API,
    in a management cluster or in manifests.
  platforms:
`
	krewPlatform = `  - selector: {matchLabels: {os: %s, arch: %s}}
    uri: %s
    sha256: %x
    bin: capi-proxy-patcher
`
)

// release is what a folder is made of.
type release struct {
	root, version, image, downloads string
	// built is the folder with what was built before, folder the one that is written.
	built, folder string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var r release
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.root, "root", ".", "folder of the repository")
	flags.StringVar(&r.version, "version", "", "version, like v1.2.3")
	flags.StringVar(&r.image, "image", "", "name of the image without a tag")
	flags.StringVar(&r.downloads, "downloads", "", "URL of the folder from which krew fetches programs")
	page := flags.Bool("page", false,
		"write the release page: its files into the folder page of -out, its text into notes.md")
	check := flags.Bool("check", false, "check the version, and write nothing")
	flags.StringVar(&r.built, "out", "out/release", "folder for the folder of the provider, with chart and programs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parsed, err := version.ParseSemantic(r.version)
	if err != nil || !strings.HasPrefix(r.version, "v") {
		return fmt.Errorf("-version %q: use a version like v1.2.3", r.version)
	}
	metadata, err := r.metadata(parsed)
	if err != nil || *check {
		return err
	}
	r.folder = filepath.Join(r.built, provider, r.version)
	if *page {
		return r.page()
	}
	if r.image == "" {
		return errors.New("-image is required")
	}
	if err := r.write(metadata); err != nil {
		return fmt.Errorf("writing %s: %w", r.folder, err)
	}
	return nil
}

// write writes the folder anew. metadata is its list of release series.
func (r release) write(metadata []byte) error {
	if err := errors.Join(os.RemoveAll(r.folder), os.MkdirAll(r.folder, 0o755)); err != nil { //nolint:gosec // anybody may read it
		return err
	}
	for _, step := range []func() error{
		func() error { return r.file(metadataFile, metadata) },
		func() error { return r.components("") }, func() error { return r.components("in-place") },
		func() error { return r.added("monitoring") }, func() error { return r.added("network-policies") },
		r.extensionConfig, r.guard, r.chart, r.programs, r.copies, r.materials, r.readme,
		func() error { return sums(r.folder) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (r release) file(name string, text []byte) error {
	return os.WriteFile(filepath.Join(r.folder, name), text, 0o644) //nolint:gosec // anybody may read it
}

// components writes what clusterctl and the Cluster API Operator install, with a component of config/components or
// without.
func (r release) components(component string) error {
	objects, err := r.with("release", component)
	if err != nil {
		return err
	}
	image := r.image + ":" + r.version
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if err != nil {
			return err
		}
		for _, container := range containers {
			container := container.(map[string]any)
			container["image"] = image
			for i, argument := range container["args"].([]any) {
				if strings.HasPrefix(argument.(string), "--node-image=") {
					container["args"].([]any)[i] = "--node-image=${CAPI_PROXY_PATCHER_NODE_IMAGE:=" + image + "}"
				}
			}
		}
		if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec",
			"containers"); err != nil {
			return err
		}
	}
	suffix := ".yaml"
	if component != "" {
		suffix = "-" + component + suffix
	}
	if err := r.objects(componentsName+suffix, objects); err != nil {
		return err
	}
	return r.operator(componentsName+suffix, "capi-operator"+suffix)
}

// with builds a kustomization of config, with a component.
func (r release) with(base, component string) ([]*unstructured.Unstructured, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)                                //nolint:errcheck // nothing is lost
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // kustomize follows links
		return nil, err
	}
	text := "resources: [../" + base + "]\n"
	if component != "" {
		text += "components: [../components/" + component + "]\n"
	}
	folder := filepath.Join(dir, "overlay")
	if err := errors.Join(os.CopyFS(dir, os.DirFS(filepath.Join(r.root, "config"))), os.Mkdir(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600)); err != nil {
		return nil, err
	}
	return mgmt.Kustomize(folder)
}

// added writes what a component adds or changes. What it adds has no label of the provider: clusterctl deletes what has
// it before it installs a new version.
func (r release) added(component string) error {
	before, err := r.with("clusterclass", "")
	if err != nil {
		return err
	}
	after, err := r.with("clusterclass", component)
	if err != nil {
		return err
	}
	var objects []*unstructured.Unstructured
	for _, object := range after {
		same := func(o *unstructured.Unstructured) bool {
			return o.GetKind() == object.GetKind() && o.GetName() == object.GetName()
		}
		i := slices.IndexFunc(before, same)
		if i < 0 {
			labels := object.GetLabels()
			delete(labels, "cluster.x-k8s.io/provider")
			object.SetLabels(labels)
		} else if equality.Semantic.DeepEqual(before[i], object) {
			continue
		}
		objects = append(objects, object)
	}
	return r.objects(component+".yaml", objects)
}

// chart packs the Helm chart.
func (r release) chart() error {
	folder := filepath.Join(r.built, "chart")
	return r.archive(r.chartName(), "", os.DirFS(folder))
}

func (r release) chartName() string {
	return "capi-proxy-patcher-" + strings.TrimPrefix(r.version, "v") + ".tgz"
}

// programs packs those of all platforms, and writes the manifest of krew.
func (r release) programs() error {
	folders, err := filepath.Glob(filepath.Join(r.built, "programs", "*"))
	if err != nil {
		return err
	}
	manifest := fmt.Appendf(nil, krew, r.version)
	for _, folder := range folders {
		platform := filepath.Base(folder)
		name := "capi-proxy-patcher-" + platform + ".tar.gz"
		if err := r.archive(name, "", os.DirFS(folder)); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(r.folder, name)) //nolint:gosec // just written
		if err != nil {
			return err
		}
		system, architecture, _ := strings.Cut(platform, "-")
		manifest = fmt.Appendf(manifest, krewPlatform, system, architecture, r.downloads+"/"+name, sha256.Sum256(text))
	}
	return r.file("krew.yaml", manifest)
}

// archive packs a folder, below another one. Times, owners and the order of files are the same on every machine.
func (r release) archive(name, below string, folder fs.FS) error {
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	files := tar.NewWriter(compressed)
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: pathpkg.Join(below, path), Mode: 0o644, Size: int64(len(text)), Format: tar.FormatUSTAR}
		if filepath.Base(path) == "capi-proxy-patcher" {
			header.Mode = 0o755
		}
		err = files.WriteHeader(header)
		return errors.Join(err, ignoreLength(files.Write(text)))
	})
	return errors.Join(err, files.Close(), compressed.Close(), r.file(name, packed.Bytes()))
}

func ignoreLength(_ int, err error) error { return err }

// objects writes objects as a stream of YAML.
func (r release) objects(name string, objects []*unstructured.Unstructured) error {
	text, err := stream(objects)
	return errors.Join(err, r.file(name, text))
}

func stream(objects []*unstructured.Unstructured) ([]byte, error) {
	var documents [][]byte
	for _, object := range objects {
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	return bytes.Join(documents, []byte("---\n")), nil
}

// extensionConfig writes what tells Cluster API of the hooks. It is not among the components: clusterctl would take it
// for an object of a namespace, and delete it together with the hooks, without which Cluster API does not start.
func (r release) extensionConfig() error {
	objects, err := mgmt.Kustomize(filepath.Join(r.root, "config", "extensionconfig"))
	if err != nil {
		return err
	}
	for _, object := range objects {
		object.SetNamespace("")
	}
	text, err := stream(objects)
	return errors.Join(err, r.file("extensionconfig.yaml",
		bytes.ReplaceAll(text, []byte(mgmt.SystemNamespace), []byte(namespaceVariable))))
}

// guard writes a second policy, which is effective while clusterctl replaces the components and their policy.
func (r release) guard() error {
	objects, err := mgmt.Kustomize(filepath.Join(r.root, "config", "guard"))
	return errors.Join(err, r.objects("guard.yaml", objects))
}

// metadata returns the list of release series, in which the version has to be.
func (r release) metadata(version *version.Version) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "config", "release", "metadata.yaml"))
	if err != nil {
		return nil, err
	}
	var metadata clusterctlv1.Metadata
	if err := yaml.UnmarshalStrict(text, &metadata); err != nil {
		return nil, fmt.Errorf("decoding config/release/metadata.yaml: %w", err)
	}
	if !slices.ContainsFunc(metadata.ReleaseSeries, func(s clusterctlv1.ReleaseSeries) bool {
		return s.Major == int32(version.Major()) && s.Minor == int32(version.Minor()) //nolint:gosec // no version is that high
	}) {
		return nil, fmt.Errorf("config/release/metadata.yaml has no release series for %s: add it", r.version)
	}
	return text, nil
}

// operator writes what the Cluster API Operator installs: components and metadata in a ConfigMap, and who asks for
// them.
func (r release) operator(components, file string) error {
	var files [2]string
	for i, name := range []string{components, metadataFile} {
		text, err := os.ReadFile(filepath.Join(r.folder, name)) //nolint:gosec // just written
		if err != nil {
			return err
		}
		files[i] = string(text)
	}
	const name = "capi-proxy-patcher"
	labels := map[string]any{"provider-components": name}
	return r.objects(file, []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": mgmt.SystemNamespace},
		}},
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": r.version, "namespace": mgmt.SystemNamespace, "labels": labels},
			"data":     map[string]any{"components": files[0], "metadata": files[1]},
		}},
		{Object: map[string]any{
			"apiVersion": "operator.cluster.x-k8s.io/v1alpha2", "kind": "RuntimeExtensionProvider",
			"metadata": map[string]any{"name": name, "namespace": mgmt.SystemNamespace},
			"spec": map[string]any{
				"version":     r.version,
				"fetchConfig": map[string]any{"selector": map[string]any{"matchLabels": labels}},
			},
		}},
	})
}
