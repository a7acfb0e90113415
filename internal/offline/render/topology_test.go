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
			unlabelled := run(t, original)
			if diff := cmp.Diff(string(original.Inputs[0].Data), string(unlabelled.Output)); diff != "" {
				t.Errorf("without the label (-want +got):\n%s", diff)
			}
			options.Inputs[0].Data = unlabel(output)
			removed := run(t, options)
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
	result := run(t, options)
	_, secrets, found := bytes.Cut(result.Output, []byte("---\napiVersion: v1\ndata:\n"))
	if !found {
		t.Fatal("there are no generated Secrets")
	}
	golden.Equal(t, "testdata/clusterclass/want-secrets.yaml", append([]byte("apiVersion: v1\ndata:\n"), secrets...))

	options.Inputs[0].Data = result.Output
	again := run(t, options)
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
	result := run(t, options)
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
	result := run(t, options)
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
		result := run(t, of(text))
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
	return of(`apiVersion: cluster.x-k8s.io/v1beta2
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
`)
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
			result := run(t, options)
			if n := bytes.Count(result.Output, []byte("generate-patches.capi-proxy-patcher")); n != 1 {
				t.Errorf("the patch is there %d times:\n%s", n, result.Output)
			}
		})
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
