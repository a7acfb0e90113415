package render_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// samples returns templates as providers publish them.
func samples(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"testdata/samples/*.yaml", "testdata/*/in.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no samples in %s: %v", pattern, err)
		}
		names = append(names, slices.DeleteFunc(found, func(name string) bool {
			return name == "testdata/clusterclass-v1beta1/in.yaml" // has classes of two namespaces, which clusterctl makes one
		})...)
	}
	return names
}

// sampleValues returns a value for each variable of a template.
func sampleValues(t *testing.T, text []byte) map[string]string {
	t.Helper()
	defaults, err := yamlprocessor.NewSimpleProcessor().GetVariableMap(text)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for name, value := range defaults {
		if values[name] = "1"; value != nil {
			values[name] = *value
		}
	}
	values["CLUSTER_NAME"], values["NAMESPACE"], values["KUBERNETES_VERSION"] = "prod", "team", "v1.36.3"
	return values
}

// generate is clusterctl generate cluster --target-namespace team: clusterctl fills in variables, gives every object
// the namespace and writes all of it anew (NewTemplate in cmd/clusterctl/client/repository/template.go).
func generate(t *testing.T, text []byte, values map[string]string) []byte {
	t.Helper()
	filled, err := yamlprocessor.NewSimpleProcessor().Process(text,
		func(name string) (string, error) { return values[name], nil })
	if err != nil {
		t.Fatal(err)
	}
	stream, err := manifest.Parse("filled.yaml", filled)
	if err != nil {
		t.Fatal(err)
	}
	var generated []byte
	for _, o := range stream.Objects() {
		object := unstructured.Unstructured{Object: o.Value()}
		object.SetNamespace("team")
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		generated = append(append(generated, "---\n"...), document...)
	}
	return generated
}

// sample labels the Clusters of a template and leaves a namespace only where keep says so.
func sample(t *testing.T, text []byte, keep func(kind string) bool) []byte {
	t.Helper()
	stream, err := manifest.Parse("sample.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range stream.Objects() {
		var edits []manifest.Edit
		if o.Kind() == "Cluster" {
			edits = append(edits,
				manifest.Edit{Op: manifest.SetScalar, Path: []string{"metadata", "labels", contract.LabelEnabled}, Value: "true"})
		}
		if !keep(o.Kind()) {
			edits = append(edits, manifest.Edit{Op: manifest.RemoveKey, Path: []string{"metadata", "namespace"}, Keep: 1})
		}
		if err := o.Apply(edits); err != nil {
			t.Fatal(err)
		}
	}
	return stream.Bytes()
}

// parsed returns the objects of a stream, and how many of them carry the proxy.
func parsed(t *testing.T, text []byte) (values []map[string]any, patched int) {
	t.Helper()
	stream, err := manifest.Parse("out.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range stream.Objects() {
		values = append(values, o.Value())
		if _, found := o.Annotations()[contract.AnnotationOutputVersion]; found {
			patched++
		}
	}
	return values, patched
}

// TestRender_CommutesWithClusterctlGenerate holds that it does not matter whether a template is patched before or after
// it is filled in, wherever it says the namespace: clusterctl gives all objects the same.
func TestRender_CommutesWithClusterctlGenerate(t *testing.T) {
	t.Parallel()
	var secret []byte
	for _, name := range []string{"http-proxy", "corp", "edge"} {
		secret = fmt.Appendf(secret, "---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {httpProxy: \"http://%[1]s.example.com:3128\"}\n", name)
	}
	for _, name := range samples(t) {
		text := read(t, name)
		for namespaces, keep := range map[string]func(string) bool{
			"as they are":      func(string) bool { return true },
			"nowhere":          func(string) bool { return false },
			"on Clusters only": func(kind string) bool { return kind == "Cluster" },
			"on others only":   func(kind string) bool { return kind != "Cluster" },
		} {
			t.Run(name+" with namespaces "+namespaces, func(t *testing.T) {
				t.Parallel()
				template := sample(t, text, keep)
				values := sampleValues(t, template)
				options := render.Options{
					Inputs:  []clusters.Input{{Name: "t.yaml", Data: template}},
					Secrets: []clusters.Input{{Name: "s.yaml", Data: secret}},
				}
				first, firstErr := render.Render(t.Context(), options)
				options.Inputs[0].Data = generate(t, template, values)
				second, err := render.Render(t.Context(), options)
				if (err == nil) != (firstErr == nil) {
					t.Fatalf("before clusterctl: %v, after: %v", firstErr, err)
				}
				if err != nil {
					if !strings.Contains(name, "tkg") { // its variables are of another product
						t.Fatal(err)
					}
					return
				}
				before, n := parsed(t, generate(t, first.Output, values))
				after, _ := parsed(t, second.Output)
				if diff := cmp.Diff(after, before); diff != "" {
					t.Errorf("(-rendered after clusterctl +before):\n%s", diff)
				}
				if n == 0 && slices.ContainsFunc(before, isClassic) {
					t.Error("no object is patched")
				}
			})
		}
	}
}

// isClassic reports whether an object is a Cluster without a topology, which has objects to patch.
func isClassic(object map[string]any) bool {
	_, topology, _ := unstructured.NestedMap(object, "spec", "topology")
	return object["kind"] == "Cluster" && !topology
}
