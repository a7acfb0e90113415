package render_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/crdschema"
)

const around = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: one, namespace: ns, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec:
  controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: one}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: workers, namespace: ns}
spec: {clusterName: one, template: {spec: {bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: one}}}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: pool, namespace: ns}
spec: {clusterName: one, template: {spec: {bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfig, name: one}}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: ns}
stringData: {httpProxy: "http://proxy.example.com:3128"}
`

// TestRender_OutputIsValid renders bootstrap objects, again, and without the label.
func TestRender_OutputIsValid(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // for tests
	for _, version := range []string{"v1beta1", "v1beta2"} {
		for range 8 {
			text := around
			for _, kind := range []string{"KubeadmControlPlane", "KubeadmConfigTemplate", "KubeadmConfig"} {
				document, err := yaml.Marshal(crdschema.Object(random, kind, version))
				if err != nil {
					t.Fatal(err)
				}
				// This line break is an error.
				text += "---\n" + strings.ReplaceAll(string(document), "\u2028", "x")
			}
			valid := func(text string) string {
				result, err := render.Render(t.Context(), of(text))
				if err != nil {
					if strings.Contains(err.Error(), "would have") {
						return "" // more than fits
					}
					t.Fatal(err)
				}
				for document := range strings.SplitSeq(string(result.Output), "---\n") {
					var object map[string]any
					if err := yaml.Unmarshal([]byte(document), &object); err != nil {
						t.Fatal(err)
					}
					if kind, _ := object["kind"].(string); !strings.HasPrefix(kind, "Kubeadm") {
						continue
					}
					if problems := crdschema.Problems(t, object); len(problems) > 0 {
						t.Fatalf("%v in\n%.3000s", problems, document)
					}
				}
				return string(result.Output)
			}
			patched := valid(text)
			if patched == "" {
				continue
			}
			if diff := cmp.Diff(patched, valid(patched)); diff != "" {
				t.Fatalf("a second run changes (-first +second):\n%s", diff)
			}
			valid(strings.Replace(patched, "enabled", "not-enabled", 1))
		}
	}
}

// TestRemoval_RestoresTheInput renders with the label, and then without it. The reference names the objects that
// are not restored byte for byte.
func TestRemoval_RestoresTheInput(t *testing.T) {
	t.Parallel()
	const (
		config    = "kind: KubeadmConfig\nmetadata: {name: one, namespace: ns}\n"
		template  = "kind: KubeadmConfigTemplate\nmetadata: {name: one, namespace: ns}\n"
		bootstrap = "apiVersion: bootstrap.cluster.x-k8s.io/"
	)
	for name, test := range map[string]struct{ object, want string }{
		"no spec":                      {bootstrap + "v1beta2\n" + config, ""},
		"a template without a spec":    {bootstrap + "v1beta2\n" + template, ""},
		"a template with metadata":     {bootstrap + "v1beta2\n" + template + "spec:\n  template:\n    metadata: {labels: {a: b}}\n", ""},
		"an empty spec of v1beta1":     {bootstrap + "v1beta1\n" + config + "spec: {} # mine\n", ""},
		"an empty template of v1beta1": {bootstrap + "v1beta1\n" + template + "spec:\n  template:\n    spec: {}\n", ""},
		"no spec in v1beta1":           {bootstrap + "v1beta1\n" + config, bootstrap + "v1beta1\n" + config + "spec: {}\n"},
		"lists that are written empty": {
			bootstrap + "v1beta1\n" + config + "spec:\n  preKubeadmCommands: []\n  files:\n  format: cloud-config\n",
			bootstrap + "v1beta1\n" + config + "spec:\n  format: cloud-config\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := strings.Replace(around,
				"  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: one}\n", "", 1)
			rendered := func(input string) string { return string(run(t, of(input)).Output) }
			if test.want == "" {
				test.want = test.object
			}
			patched := rendered(cluster + "---\n" + test.object)
			if !strings.Contains(patched, "Managed by") {
				t.Fatalf("not patched:\n%s", patched)
			}
			_, got, _ := strings.Cut(rendered(strings.Replace(patched, "enabled", "not-enabled", 1)),
				"proxy.example.com:3128\"}\n---\n")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("after removal (-want +got):\n%s", diff)
			}
		})
	}
}
