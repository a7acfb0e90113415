// Command release writes the folder of a release, from which clusterctl and the Cluster API Operator install:
// components, metadata, templates, ExtensionConfig, image, bill of materials and checksums. Equal input makes equal
// bytes.
//
//	release -version v1.2.3 -image registry/name -layout out/image -out out/release
//
// make release calls it with what it has built of a commit.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	componentsFile = "runtime-extension-components.yaml"
	metadataFile   = "metadata.yaml"
)

// namespaceVariable stands in extensionconfig.yaml for the namespace of the installation.
const namespaceVariable = "${CAPI_PROXY_PATCHER_NAMESPACE:=" + mgmt.SystemNamespace + "}"

// release is what a folder is made of.
type release struct {
	root, version, image, revision string
	created                        time.Time
	// layout is the folder of the OCI layout of the image.
	layout string
	// folder is the one that is written.
	folder string
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
	flags.StringVar(&r.revision, "revision", "", "commit")
	flags.StringVar(&r.layout, "layout", "out/image", "folder of the OCI layout of the image")
	created := flags.Int64("created", 0, "time of the commit, in seconds since 1970")
	check := flags.Bool("check", false, "check the version, and write nothing")
	out := flags.String("out", "out/release", "folder for the folder of the provider")
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
	if r.image == "" {
		return errors.New("-image is required")
	}
	r.created = time.Unix(*created, 0).UTC()
	r.folder = filepath.Join(*out, provider, r.version)
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
		r.components, r.extensionConfig, r.guard, r.templates,
		func() error { return r.file(metadataFile, metadata) }, r.operator,
		func() error { return os.CopyFS(filepath.Join(r.folder, "image"), os.DirFS(r.layout)) },
		r.materials, r.checksums,
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

// components writes what clusterctl installs.
func (r release) components() error {
	objects, err := mgmt.Kustomize(filepath.Join(r.root, "config", "release"))
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if err != nil {
			return err
		}
		for _, container := range containers {
			container.(map[string]any)["image"] = r.image + ":" + r.version
		}
		if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec",
			"containers"); err != nil {
			return err
		}
	}
	return r.objects(componentsFile, objects)
}

// objects writes objects as a stream of YAML.
func (r release) objects(name string, objects []*unstructured.Unstructured) error {
	var text bytes.Buffer
	for i, object := range objects {
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		if i > 0 {
			text.WriteString("---\n")
		}
		text.Write(document)
	}
	return r.file(name, text.Bytes())
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
	const name = "extensionconfig.yaml"
	if err := r.objects(name, objects); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.folder, name))
	if err != nil {
		return err
	}
	return r.file(name, bytes.ReplaceAll(text, []byte(mgmt.SystemNamespace), []byte(namespaceVariable)))
}

// guard writes a second policy, which is effective while clusterctl replaces the components and their policy.
func (r release) guard() error {
	objects, err := mgmt.Kustomize(filepath.Join(r.root, "config", "guard"))
	if err != nil {
		return err
	}
	return r.objects("guard.yaml", objects)
}

// templates copies what users copy.
func (r release) templates() error {
	files, err := filepath.Glob(filepath.Join(r.root, "templates", "*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(errors.New("there are no templates"), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of the repository
		if err != nil {
			return err
		}
		if err := r.file(filepath.Base(file), text); err != nil {
			return err
		}
	}
	return nil
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
func (r release) operator() error {
	var files [2]string
	for i, name := range []string{componentsFile, metadataFile} {
		text, err := os.ReadFile(filepath.Join(r.folder, name)) //nolint:gosec // just written
		if err != nil {
			return err
		}
		files[i] = string(text)
	}
	const name = "capi-proxy-patcher"
	labels := map[string]any{"provider-components": name}
	return r.objects("capi-operator.yaml", []*unstructured.Unstructured{
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

// checksums writes those of all files, for sha256sum -c.
func (r release) checksums() error {
	var lines []string
	err := filepath.WalkDir(r.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // just written
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.folder, path)
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), filepath.ToSlash(name)))
		return err
	})
	if err != nil {
		return err
	}
	return r.file("checksums.txt", []byte(strings.Join(lines, "")))
}
