package vocabulary

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// CopyConfig copies the folder config, so that a test may edit it, and returns its path.
func CopyConfig(t *testing.T) string {
	t.Helper()
	// Kustomize follows links.
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(folder, "config")
	if err := os.CopyFS(config, os.DirFS("../../config")); err != nil {
		t.Fatal(err)
	}
	return config
}

// Overlay builds a kustomization of a user, in a folder beside the folder config.
func Overlay(t *testing.T, config, text string) []*unstructured.Unstructured {
	t.Helper()
	folder, err := os.MkdirTemp(filepath.Dir(config), "overlay-") //nolint:usetesting // beside config
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Kustomize(t, folder)
}

// Kustomize builds a kustomization.
func Kustomize(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := mgmt.Kustomize(folder)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// OfKind returns the objects of a kind, whose type is T.
func OfKind[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		var typed T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
			t.Fatal(err)
		}
		found = append(found, typed)
	}
	return found
}

// Decode returns the objects of a stream of YAML or JSON, without empty documents.
func Decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatalf("%v in\n%s", err, text)
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}
