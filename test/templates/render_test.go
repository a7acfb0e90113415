package templates

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// folder is where the templates are.
const folder = "../../templates"

const secretFile = "proxy-secret.yaml"

// values are variables of clusterctl.
type values map[string]string

// usual are the values that clusterctl always has; those given come on top.
func usual(more values) values {
	all := values{
		"CLUSTER_NAME": "prod", "NAMESPACE": "team", "KUBERNETES_VERSION": "v1.36.3",
		"CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "0",
	}
	maps.Copy(all, more)
	return all
}

// odd are values that are legal and look like something else in YAML.
func odd() values {
	return usual(values{
		"CLUSTER_NAME": "1e3", "NAMESPACE": "0123", "KUBERNETES_VERSION": "v1.36.3+vmware.1-fips.0",
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "100", "CLUSTER_CLASS": "null",
		"INFRASTRUCTURE_PREFIX": "Demo", "POD_CIDR": `["10.0.0.0/16", "fd00:1::/64"]`, "SERVICE_CIDR": "[10.1.0.0/16]",
		"SERVICE_DOMAIN": "1.0",
	})
}

// templates returns the names of the templates.
func templates(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"cluster-template*.yaml", "clusterclass-*.yaml"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			names = append(names, filepath.Base(path))
		}
	}
	if len(names) < 7 {
		t.Fatalf("only %d templates: %q", len(names), names)
	}
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fill fills in a template with clusterctl's own code.
func fill(t *testing.T, template []byte, v values) []byte {
	t.Helper()
	text, err := yamlprocessor.NewSimpleProcessor().Process(template, func(name string) (string, error) {
		if value, found := v[name]; found {
			return value, nil
		}
		return "", fmt.Errorf("variable %s is not set", name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// objects parses manifests.
func objects(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	stream, err := manifest.Parse("rendered", text)
	if err != nil {
		t.Fatal(err)
	}
	var found []*unstructured.Unstructured
	for _, o := range stream.Objects() {
		found = append(found, &unstructured.Unstructured{Object: o.Value()})
	}
	return found
}

func TestTemplates_ExplainEveryVariable(t *testing.T) {
	t.Parallel()
	readme := string(read(t, "README.md"))
	for _, name := range templates(t) {
		if !strings.Contains(readme, "`"+name+"`") {
			t.Errorf("README.md does not mention %s", name)
		}
		variables, err := yamlprocessor.NewSimpleProcessor().GetVariableMap(read(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for variable, value := range variables {
			row := ""
			for line := range strings.Lines(readme) {
				if strings.HasPrefix(line, "| `") && strings.Contains(line, "`"+variable+"`") {
					row = line
				}
			}
			switch {
			case row == "":
				t.Errorf("README.md does not explain %s of %s", variable, name)
			case value != nil && !strings.Contains(row, "`"+*value+"`"):
				t.Errorf("README.md has another default for %s than %s: %s", variable, name, *value)
			}
		}
	}
}

// TestTemplates_KeepOddValues checks every place where a value is used.
func TestTemplates_KeepOddValues(t *testing.T) {
	t.Parallel()
	for _, name := range templates(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := odd()
			for _, object := range objects(t, fill(t, read(t, name), v)) {
				if got := object.GetNamespace(); got != v["NAMESPACE"] {
					t.Errorf("%s is in namespace %q", object.GetKind(), got)
				}
				if object.GetName() == "" {
					t.Errorf("%s has no name", object.GetKind())
				}
				if group := object.GroupVersionKind().Group; group == "infrastructure.cluster.x-k8s.io" &&
					!strings.HasPrefix(object.GetKind(), "Demo") {
					t.Errorf("%s does not begin with Demo", object.GetKind())
				}
				if object.GetKind() != "Cluster" {
					continue
				}
				network, _, _ := unstructured.NestedMap(object.Object, "spec", "clusterNetwork")
				want := map[string]any{
					"pods":          map[string]any{"cidrBlocks": []any{"10.0.0.0/16", "fd00:1::/64"}},
					"services":      map[string]any{"cidrBlocks": []any{"10.1.0.0/16"}},
					"serviceDomain": "1.0",
				}
				if diff := cmp.Diff(want, network); diff != "" {
					t.Errorf("clusterNetwork (-want +got):\n%s", diff)
				}
				if object.GetName() != "1e3" || object.GetLabels()[contract.LabelEnabled] != contract.LabelEnabledValue {
					t.Errorf("Cluster %s has labels %v", object.GetName(), object.GetLabels())
				}
			}
		})
	}
}

func TestTemplates_ReferencesResolve(t *testing.T) {
	t.Parallel()
	for _, names := range templateSets(t) {
		t.Run(strings.Join(names, " and "), func(t *testing.T) {
			t.Parallel()
			var all []*unstructured.Unstructured
			for _, name := range names {
				all = append(all, objects(t, fill(t, read(t, name), usual(nil)))...)
			}
			there := map[string]bool{}
			for _, object := range all {
				there[object.GetKind()+" "+object.GetName()] = true
			}
			references := 0
			for _, object := range all {
				walk(object.Object["spec"], func(m map[string]any) {
					kind, isKind := m["kind"].(string)
					if name, isName := m["name"].(string); isKind && isName {
						references++
						if !there[kind+" "+name] {
							t.Errorf("%s %s refers to %s %s", object.GetKind(), object.GetName(), kind, name)
						}
					}
				})
				if class, found, _ := unstructured.NestedString(object.Object, "spec", "topology", "classRef", "name"); found {
					references++
					if !there["ClusterClass "+class] {
						t.Errorf("%s refers to ClusterClass %s", object.GetName(), class)
					}
				}
			}
			if references < 3 {
				t.Errorf("only %d references were seen", references)
			}
		})
	}
}

// templateSets returns what a user applies together.
func templateSets(t *testing.T) [][]string {
	t.Helper()
	var sets [][]string
	for _, name := range templates(t) {
		if suffix, isTopology := strings.CutPrefix(name, "cluster-template-clusterclass"); isTopology {
			sets = append(sets, []string{"clusterclass-proxied" + suffix, name})
		} else if strings.HasPrefix(name, "cluster-template") {
			sets = append(sets, []string{name})
		}
	}
	return sets
}

// walk calls visit with every mapping in a value.
func walk(value any, visit func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		visit(value)
		for _, nested := range value {
			walk(nested, visit)
		}
	case []any:
		for _, nested := range value {
			walk(nested, visit)
		}
	}
}

// TestTemplates_CanBeRenderedFirst proves that render may patch a template before it is filled in, and afterwards.
func TestTemplates_CanBeRenderedFirst(t *testing.T) {
	t.Parallel()
	secret := clusters.Input{Name: secretFile, Data: read(t, secretFile)}
	for _, names := range templateSets(t) {
		t.Run(strings.Join(names, " and "), func(t *testing.T) {
			t.Parallel()
			for _, v := range []values{usual(nil), odd()} {
				var template, filled render.Options
				for _, name := range names {
					template.Inputs = append(template.Inputs, clusters.Input{Name: name, Data: read(t, name)})
					filled.Inputs = append(filled.Inputs, clusters.Input{Name: name, Data: fill(t, read(t, name), v)})
				}
				template.Secrets, filled.Secrets = []clusters.Input{secret}, []clusters.Input{secret}
				after, afterErr := render.Render(t.Context(), filled)
				before, err := render.Render(t.Context(), template)
				if err := errors.Join(err, afterErr); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(after.Output), string(fill(t, before.Output, v))); diff != "" {
					t.Errorf("(-filled in before +after):\n%s", diff)
				}
				for _, note := range slices.Concat(before.Notes, after.Notes) {
					if strings.Contains(note, "warning: ") {
						t.Errorf("unexpected note: %s", note)
					}
				}
				if topology := len(names) == 2; topology != (len(after.Diff()) == 0) {
					t.Errorf("a class of ours declares the patch already, and all others are patched; the diff is\n%s", after.Diff())
				}
			}
		})
	}
}

func TestTemplates_SecretHasNoFinding(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	text := read(t, secretFile)
	report, err := lint.Run(t.Context(), lint.Options{Inputs: []clusters.Input{{Name: secretFile, Data: text}}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) > 0 || report.Summary.Secrets != 1 {
		t.Errorf("%+v", report)
	}
	for _, key := range contract.SecretKeys() {
		if !bytes.Contains(text, []byte("\n  "+key+": ")) && !bytes.Contains(text, []byte("\n  # "+key+": ")) {
			t.Errorf("it does not show key %s", key)
		}
	}
}

// clusterctl returns a function that runs the program with variables and returns its objects.
func clusterctl(t *testing.T) func(v values, args ...string) []*unstructured.Unstructured {
	t.Helper()
	program := filepath.Join(os.Getenv(mgmt.AssetsVariable), "clusterctl")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("clusterctl"); err != nil {
			t.Skipf("there is no clusterctl in $%s and in $PATH; run hack/kube/build.sh $%s clusterctl", mgmt.AssetsVariable,
				mgmt.AssetsVariable)
		}
	}
	home := t.TempDir()
	return func(v values, args ...string) []*unstructured.Unstructured {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = []string{
			"HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none"),
			"CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		}
		for name, value := range v {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("clusterctl %s: %v: %s", strings.Join(args, " "), err, stderr.Bytes())
		}
		return objects(t, out)
	}
}

// generateArgs are the arguments that say what values say, as a user gives them.
func generateArgs(v values) []string {
	return []string{
		"generate", "cluster", v["CLUSTER_NAME"], "--target-namespace", v["NAMESPACE"], "--kubernetes-version", v["KUBERNETES_VERSION"],
		"--control-plane-machine-count", v["CONTROL_PLANE_MACHINE_COUNT"], "--worker-machine-count", v["WORKER_MACHINE_COUNT"],
	}
}

// fromEnvironment are the values that are not arguments.
func fromEnvironment(v values) values {
	rest := maps.Clone(v)
	for name := range usual(nil) {
		delete(rest, name)
	}
	return rest
}

// TestTemplates_AreRenderedByClusterctl runs clusterctl generate cluster --from.
func TestTemplates_AreRenderedByClusterctl(t *testing.T) {
	t.Parallel()
	run := clusterctl(t)
	for _, name := range templates(t) {
		for _, v := range []values{usual(nil), odd()} {
			got := run(fromEnvironment(v), append(generateArgs(v), "--from", filepath.Join(folder, name))...)
			if diff := cmp.Diff(objects(t, fill(t, read(t, name), v)), got); diff != "" {
				t.Errorf("%s (-clusterctl's code +clusterctl):\n%s", name, diff)
			}
		}
	}
}

// TestTemplates_FlavorsBringTheirClass runs clusterctl generate cluster --flavor on a repository as providers publish
// it.
func TestTemplates_FlavorsBringTheirClass(t *testing.T) {
	t.Parallel()
	run := clusterctl(t)
	repository := t.TempDir()
	release := filepath.Join(repository, "infrastructure-ours", "v1.0.0")
	if err := os.MkdirAll(release, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(path string, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range templates(t) {
		write(filepath.Join(release, name), read(t, name))
	}
	components := filepath.Join(release, "infrastructure-components.yaml")
	write(components, nil)
	config := filepath.Join(repository, "clusterctl.yaml")
	write(config, fmt.Appendf(nil, "providers:\n- name: ours\n  type: InfrastructureProvider\n  url: %s\n", components))

	v := usual(nil)
	for _, names := range templateSets(t) {
		flavor := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(names[len(names)-1], "cluster-template"), ".yaml"),
			"-")
		got := run(nil, append(generateArgs(v), "--config", config, "--infrastructure", "ours:v1.0.0", "--flavor", flavor)...)
		var want []*unstructured.Unstructured
		for _, name := range names {
			want = append(want, objects(t, fill(t, read(t, name), v))...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("flavor %q (-want +got):\n%s", flavor, diff)
		}
	}
}
