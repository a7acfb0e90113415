package render_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

func TestRender_ClusterClassesAreGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"clusterclass", "clusterclass-v1beta1", "clusterclass-declared", "topology"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", name)
			options, output := isGolden(t, dir)

			// Without the label nothing is added, and a class keeps the patch: other Clusters may need it.
			unlabel := func(text []byte) []byte {
				return bytes.ReplaceAll(text, []byte("capi-proxy-patcher.io/enabled:"), []byte("not-enabled:"))
			}
			original := input(t, dir)
			original.Inputs[0].Data = unlabel(original.Inputs[0].Data)
			unlabelled, err := render.Render(t.Context(), original)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(original.Inputs[0].Data), string(unlabelled.Output)); diff != "" {
				t.Errorf("without the label (-want +got):\n%s", diff)
			}
			options.Inputs[0].Data = unlabel(output)
			removed, err := render.Render(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			if n, want := bytes.Count(removed.Output, []byte("generate-patches.")),
				bytes.Count(output, []byte("generate-patches.")); n != want {
				t.Errorf("without the label %d classes declare the patch, want %d", n, want)
			}
			if bytes.Contains(removed.Output, []byte("proxy.env")) {
				t.Error("a template that the topology does not own kept the proxy")
			}
		})
	}
}

func TestRender_AddsGeneratedSecretsOfATopology(t *testing.T) {
	t.Parallel()
	options := input(t, "testdata/clusterclass")
	options.IncludeSecrets = true
	result, err := render.Render(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	_, secrets, found := bytes.Cut(result.Output, []byte("---\napiVersion: v1\ndata:\n"))
	if !found {
		t.Fatal("there are no generated Secrets")
	}
	golden.Equal(t, "testdata/clusterclass/want-secrets.yaml", append([]byte("apiVersion: v1\ndata:\n"), secrets...))

	options.Inputs[0].Data = result.Output
	again, err := render.Render(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(result.Output), string(again.Output)); diff != "" {
		t.Errorf("a second run changes (-first +second):\n%s", diff)
	}
}

func TestRender_PatchesAClassInAnotherFile(t *testing.T) {
	t.Parallel()
	whole := input(t, "testdata/clusterclass")
	class, cluster, _ := bytes.Cut(whole.Inputs[0].Data, []byte("---\n"))
	// The Cluster comes first: the order of the input does not matter.
	options := render.Options{Inputs: []clusters.Input{
		{Name: "cluster.yaml", Data: cluster},
		{Name: "class.yaml", Data: class},
	}, Secrets: whole.Secrets}
	result, err := render.Render(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	_, changes, found := strings.Cut(string(result.Diff()), "--- class.yaml\n")
	if !found {
		t.Fatalf("class.yaml has no diff:\n%s", result.Diff())
	}
	const want = `+++ class.yaml (rendered)
@@ -31,6 +31,11 @@
                 template: |
                   - path: /etc/motd
                     content: "{{ .builtin.cluster.name }} costs 50% of $HOME"
+    - name: capi-proxy-patcher
+      external:
+        generatePatchesExtension: generate-patches.capi-proxy-patcher
+        validateTopologyExtension: validate-topology.capi-proxy-patcher
+        discoverVariablesExtension: discover-variables.capi-proxy-patcher
     # Nothing follows.
 
   # What users may set.
`
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("the diff of class.yaml (-want +got):\n%s", diff)
	}
}

func TestRender_NotesATopologyWithoutTheLabel(t *testing.T) {
	t.Parallel()
	options := input(t, "testdata/clusterclass-v1beta1")
	options.All = true
	options.Inputs[0].Data = bytes.ReplaceAll(options.Inputs[0].Data, []byte("capi-proxy-patcher.io/enabled"),
		[]byte("other"))
	result, err := render.Render(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	const want = "Cluster team/one: the topology hook patches nothing without label capi-proxy-patcher.io/enabled=true; add it to the Cluster"
	if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, want) {
		t.Errorf("notes lack %q:\n%s", want, notes)
	}
	if !bytes.Contains(result.Output, []byte("generateExtension: generate-patches.capi-proxy-patcher")) {
		t.Error("--all did not patch the class")
	}
}

func TestRender_LeavesObjectsOfATopologyAlone(t *testing.T) {
	t.Parallel()
	for _, label := range []string{`{capi-proxy-patcher.io/enabled: "true"}`, "{}"} {
		text := `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c, labels: ` + label + `}
spec:
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: c-xyz}
  topology: {classRef: {name: base}, version: v1.36.3}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: c-xyz, labels: {topology.cluster.x-k8s.io/owned: ""}}
spec:
  kubeadmConfigSpec:
    preKubeadmCommands: ["set -a; . /etc/capi-proxy-patcher/proxy.env; set +a # capi-proxy-patcher"]
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: c-md-abc, labels: {topology.cluster.x-k8s.io/owned: ""}}
spec: {clusterName: c, template: {spec: {bootstrap: {configRef: {kind: RKE2ConfigTemplate, name: c-md-abc}}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy}
stringData: {httpProxy: "http://proxy.corp.example:3128"}
`
		result, err := render.Render(t.Context(),
			render.Options{Inputs: []clusters.Input{{Name: "live.yaml", Data: []byte(text)}}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text, string(result.Output)); diff != "" {
			t.Errorf("with labels %s (-want +got):\n%s", label, diff)
		}
		if notes := strings.Join(result.Notes, "\n"); strings.Contains(notes, "c-xyz") ||
			strings.Contains(notes, "c-md-abc") {
			t.Errorf("notes about what the topology owns:\n%s", notes)
		}
	}
}

// topologyInput is a Cluster with a class and a proxy Secret.
func topologyInput(annotations, variables, workers, patches, secretData string) render.Options {
	return render.Options{Inputs: []clusters.Input{{Name: "m.yaml", Data: []byte(`apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: base}
spec: {patches: ` + patches + `}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: c
  labels: {capi-proxy-patcher.io/enabled: "true"}
  annotations: {` + annotations + `}
spec:
  topology:
    classRef: {name: base}
    version: v1.36.3
    variables: [` + variables + `]
    workers: {machineDeployments: [` + workers + `]}
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy}
stringData: {` + secretData + `}
`)}}}
}

func TestRender_ReportsABadTopologyInOneError(t *testing.T) {
	t.Parallel()
	const (
		plain  = "httpProxy: 'http://proxy.example.com:3128'"
		secret = "httpProxy: 'http://node:s3cr@proxy.example.com:3128'"
	)
	variable := func(value string) string { return "{name: capiProxyPatcher, value: " + value + "}" }
	pool := func(value string) string {
		return "{name: md, class: linux, variables: {overrides: [" + variable(value) + "]}}"
	}
	for name, test := range map[string]struct {
		options render.Options
		want    []string
	}{
		"a variable that is no object":        {topologyInput("", variable("s3cr"), "", "[]", plain), []string{"m.yaml: document 2: Cluster c: spec.topology.variables[capiProxyPatcher]: is not an object"}},
		"an unknown field":                    {topologyInput("", variable("{secretname: a}"), "", "[]", plain), []string{`["secretname"]: is not a field of the variable`}},
		"an entry with a scheme":              {topologyInput("", variable("{noProxy: [a.example, 'http://s3cr.example']}"), "", "[]", plain), []string{"spec.topology.variables[capiProxyPatcher].noProxy[1]"}},
		"a variable against an annotation":    {topologyInput("capi-proxy-patcher.io/secret: other", variable("{secretName: corp}"), "", "[]", plain), []string{"spec.topology.variables[capiProxyPatcher].secretName: differs from metadata.annotations[capi-proxy-patcher.io/secret]"}},
		"an override of the targets":          {topologyInput("", "", pool("{targets: [trust]}"), "[]", plain), []string{"spec.topology.workers.machineDeployments[md].variables.overrides[capiProxyPatcher].targets: differs from the Cluster's value"}},
		"every finding at once":               {topologyInput("", variable("{targets: [crio]}"), pool("{targets: []}"), "[]", plain), []string{`"crio" is not a target`, "machineDeployments[md]", "is empty"}},
		"a Secret that is not there":          {topologyInput("", variable("{secretName: other}"), "", "[]", plain), []string{"Cluster c: Secret other does not exist", "--secret"}},
		"a Secret of a pool is not there":     {topologyInput("", "", pool("{secretName: other}"), "[]", plain), []string{"Cluster c: Secret other does not exist"}},
		"an output version of somebody's own": {topologyInput("capi-proxy-patcher.io/output-version: new", "", "", "[]", plain), []string{"Cluster c: annotation capi-proxy-patcher.io/output-version of the Cluster: not an output version"}},
		"an output version to come":           {topologyInput("capi-proxy-patcher.io/output-version: '99'", "", "", "[]", plain), []string{"Cluster c: output version 99 is not known"}},
		"the name is taken":                   {topologyInput("", "", "", "[{name: capi-proxy-patcher, definitions: []}]", plain), []string{"m.yaml: document 1: ClusterClass base: spec.patches[0]: its name is capi-proxy-patcher but it is not that product's patch; rename it"}},
		"the name is taken by another hook":   {topologyInput("", "", "", "[{name: a}, {name: capi-proxy-patcher, external: {generatePatchesExtension: x.capi-proxy-patcher}}]", plain), []string{"spec.patches[1]: its name is"}},
		"patches are no list":                 {topologyInput("", "", "", "{a: b}", plain), []string{"m.yaml", "document 1", "patches"}},
		"patches are a variable":              {topologyInput("", "", "", "${PATCHES}", plain), []string{"m.yaml", "document 1", "patches"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first string
			for i := range 2 {
				result, err := render.Render(t.Context(), test.options)
				if err == nil || len(result.Output) > 0 {
					t.Fatalf("rendered %q, error %v; want only an error", result.Output, err)
				}
				for _, part := range test.want {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("error %q lacks %q", err, part)
					}
				}
				if strings.Contains(err.Error(), "s3cr.") || strings.Contains(err.Error(), "node:s3cr") {
					t.Errorf("error %q holds a value", err)
				}
				if i == 1 && err.Error() != first {
					t.Errorf("error changed from %q to %q", first, err)
				}
				first = err.Error()
			}
		})
	}
}

func TestRender_SurvivesOddTopologies(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]render.Options{
		"no patches":             topologyInput("", "", "", "null", "httpProxy: 'http://p:1'"),
		"patches of other types": topologyInput("", "", "", "[1, a, null, {external: x}, {name: 3, definitions: x}]", "httpProxy: 'http://p:1'"),
		"pools of other types":   topologyInput("", "1, {name: 2}", "1, {name: 7, metadata: x, variables: y}", "[]", "httpProxy: 'http://p:1'"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := render.Render(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(result.Output, []byte("generate-patches.capi-proxy-patcher")); n != 1 {
				t.Errorf("the patch is there %d times:\n%s", n, result.Output)
			}
		})
	}
}

func TestManifests_KnowWhatATopologySays(t *testing.T) {
	t.Parallel()
	options := input(t, "testdata/clusterclass")
	m, err := clusters.Read(options.Inputs, options.Secrets, options.DefaultSecret)
	if err != nil {
		t.Fatal(err)
	}
	got := m.Clusters()[0].View
	if secret := got.Annotations["capi-proxy-patcher.io/secret"]; secret != "corp" ||
		got.Infrastructure.Kind != "AWSCluster" {
		t.Errorf("Secret %q and infrastructure %q, want corp and AWSCluster", secret, got.Infrastructure.Kind)
	}
}

// FuzzClassIsPatchedOnce gives a Cluster a ClusterClass of any shape: what render makes of it declares the patch, and a
// second run changes nothing.
func FuzzClassIsPatchedOnce(f *testing.F) {
	for _, patches := range []string{
		"[]", "null", "", "\n  - name: a # one\n    definitions: []\n  # end", "\n  - {name: capi-proxy-patcher, external: {generatePatchesExtension: generate-patches.x}}",
		"&a [{name: b}]", "[1, {external: {generateExtension: generate-patches.capi-proxy-patcher}}]", "${PATCHES:=[]}", "{a: b}", "\r\n  - name: \"%{{ $\"\r\n",
		"[{name: a, definitions: [{selector: {kind: KubeadmConfigTemplate}}]}]\n  workers: {machinePools: [{bootstrap: {templateRef: {kind: X}}}]}",
	} {
		f.Add(patches, "v1beta2")
		f.Add(patches, "v1beta1")
	}
	f.Fuzz(func(t *testing.T, patches, version string) {
		options := topologyInput("", "", "", "[]", "httpProxy: 'http://p:1'")
		class := "apiVersion: cluster.x-k8s.io/" + version +
			"\nkind: ClusterClass\nmetadata: {name: base}\nspec:\n  patches: " + patches + "\n"
		_, rest, _ := bytes.Cut(options.Inputs[0].Data, []byte("---\n"))
		options.Inputs = []clusters.Input{{Name: "class.yaml", Data: []byte(class)}, {Name: "cluster.yaml", Data: rest}}
		result, err := render.Render(t.Context(), options)
		if err != nil {
			return
		}
		options.Inputs = []clusters.Input{{Name: "all.yaml", Data: result.Output}}
		again, err := render.Render(t.Context(), options)
		if err != nil {
			t.Fatalf("a second run: %v\n%s", err, result.Output)
		}
		if !bytes.Equal(result.Output, again.Output) {
			t.Errorf("a second run changes\n%s\nto\n%s", result.Output, again.Output)
		}
		found := !strings.Contains(strings.Join(result.Notes, "\n"), "is not in the input")
		if found && !bytes.Contains(result.Output, []byte("generate-patches.")) {
			t.Errorf("the class does not declare the patch:\n%s", result.Output)
		}
	})
}
