package templates

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// examples returns the YAML examples of a page, without the indentation of lists.
func examples(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for i, part := range strings.Split(string(text), "```") {
		if code, isYAML := strings.CutPrefix(part, "yaml\n"); i%2 == 1 && isYAML {
			found = append(found, code)
		}
	}
	return found
}

// TestDocs_ExamplesWork reads them as the API server and the topology hook do.
func TestDocs_ExamplesWork(t *testing.T) {
	t.Parallel()
	found := examples(t, "../../docs/clusterclass.md")
	if len(found) != 3 {
		t.Fatalf("%d examples, want that of a class, of a variable and of pools", len(found))
	}
	var class clusterv1.ClusterClass
	if err := yaml.UnmarshalStrict([]byte(found[0]), &class); err != nil {
		t.Fatal(err)
	}
	template := objects(t, fill(t, read(t, "clusterclass-proxied.yaml"), usual(nil)))[0]
	var ours clusterv1.ClusterClass
	text, err := json.Marshal(template.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &ours); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ours.Spec.Patches, class.Spec.Patches); diff != "" {
		t.Errorf("patches of the class (-template +example):\n%s", diff)
	}

	var strict clusterv1.Cluster
	if err := yaml.UnmarshalStrict([]byte(found[1]+found[2]), &strict); err != nil {
		t.Fatal(err)
	}
	cluster := api.As[clusterv1.Cluster](strict)
	desired, err := settings.Of(cluster)
	if err != nil {
		t.Fatal(err)
	}
	want := []settings.Pool{
		{Kind: settings.KindMachineDeployment, Name: "edge", Topology: true, Override: "edge-proxy"},
		{Kind: settings.KindMachineDeployment, Name: "lab", Topology: true, Override: contract.SecretNone},
	}
	if diff := cmp.Diff(want, desired.Pools); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	variable, err := settings.ParseVariable(cluster.Spec.Topology.Variables[0].Value.Raw)
	if err != nil {
		t.Fatal(err)
	}
	all := settings.Variable{
		SecretName: "corp-proxy", Targets: contract.Targets(),
		NoProxy: []string{"registry.corp.example", "10.20.0.0/16"},
	}
	if diff := cmp.Diff(all, variable); diff != "" {
		t.Errorf("the example of the variable does not show every field (-want +got):\n%s", diff)
	}
}

// TestTemplates_CommentedExamplesWork uncomments what templates show and omit.
func TestTemplates_CommentedExamplesWork(t *testing.T) {
	t.Parallel()
	// A line of an example is a key or an item; a sentence has a comma, or neither.
	isExample := func(comment string) bool {
		text := strings.TrimSpace(comment)
		return !strings.Contains(text, ", ") && (strings.HasSuffix(text, ":") || strings.HasPrefix(text, "- ") ||
			strings.Count(text, ": ") == 1)
	}
	uncomment := func(name string) []byte {
		var text strings.Builder
		begun := false // in front of the first object are sentences
		for line := range strings.Lines(string(read(t, name))) {
			begun = begun || strings.HasPrefix(line, "kind: ")
			if before, comment, found := strings.Cut(line, "# "); found && begun && isExample(comment) {
				line = before + comment
			}
			text.WriteString(line)
		}
		return []byte(text.String())
	}
	for name, want := range map[string]string{
		"cluster-template-clusterclass.yaml":             contract.SecretNone,
		"cluster-template-clusterclass-machinepool.yaml": contract.SecretNone,
	} {
		object := objects(t, fill(t, uncomment(name), usual(nil)))[0]
		text, err := json.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		var cluster clusterv1.Cluster
		if err := json.Unmarshal(text, &cluster); err != nil {
			t.Fatal(err)
		}
		desired, err := settings.Of(&cluster)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if desired.SecretName != "http-proxy" || desired.Options.NoProxy == "" || len(desired.Pools) != 1 ||
			desired.Pools[0].Override != want {
			t.Errorf("%s: settings are %+v", name, desired)
		}
	}
	for _, name := range []string{
		"cluster-template.yaml", "cluster-template-ignition.yaml", "cluster-template-machinepool.yaml",
	} {
		var overrides int
		for _, object := range objects(t, fill(t, uncomment(name), usual(nil))) {
			if object.GetAnnotations()[contract.AnnotationSecret] == contract.SecretNone &&
				strings.HasPrefix(object.GetKind(), "Machine") {
				overrides++
			}
		}
		if overrides != 1 {
			t.Errorf("%s shows the annotation of a pool %d times", name, overrides)
		}
	}
}
