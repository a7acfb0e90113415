package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// TestDocs_ExamplesOfAnInstallationWork builds the overlay of docs/install.md, and holds the provider to its schema.
func TestDocs_ExamplesOfAnInstallationWork(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	start, err := os.ReadFile(filepath.Join(root, "docs", "start.md"))
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for i, part := range strings.Split(string(text), "```") {
		code, isYAML := strings.CutPrefix(part, "yaml\n")
		if i%2 == 0 || !isYAML {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(code), &object.Object); err != nil {
			t.Fatalf("%v:\n%s", err, code)
		}
		checked[object.GetKind()] = true
		switch object.GetKind() {
		case "Kustomization":
			objects := vocabulary.Overlay(t, vocabulary.CopyConfig(t), strings.ReplaceAll(code, "path/to/", "../"))
			checkNames(t, objects, otherNamespace)
			for container, image := range images(t, objects) {
				if !strings.HasPrefix(image, "my-registry.example.com/team/") {
					t.Errorf("container %s has image %s", container, image)
				}
			}
		case "RuntimeExtensionProvider":
			checkProvider(t, object)
		case "": // clusterctl.yaml
			if !strings.Contains(string(start), "```yaml\n"+code+"```\n") {
				t.Error("docs/start.md has another clusterctl.yaml")
			}
			providers, _, _ := unstructured.NestedSlice(object.Object, "providers")
			if len(providers) != 1 {
				t.Fatalf("providers %v", providers)
			}
			provider := providers[0].(map[string]any)
			url, _ := provider["url"].(string)
			if provider["name"] != "capi-proxy-patcher" || provider["type"] != "RuntimeExtensionProvider" ||
				!strings.HasSuffix(url, "/runtime-extension-capi-proxy-patcher/"+releaseVersion+"/"+components) {
				t.Errorf("provider %v", provider)
			}
		}
	}
	if len(checked) != 3 {
		t.Errorf("examples of %v", checked)
	}
}
