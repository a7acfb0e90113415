package render_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/render"
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

// TestWhatIsRenderedIsValid renders bootstrap objects, again, and without the label.
func TestWhatIsRenderedIsValid(t *testing.T) {
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
				text += "---\n" + string(document)
			}
			run := func(text string) string {
				result, err := render.Render(t.Context(), render.Options{Inputs: []render.Input{{Name: "-", Data: []byte(text)}}})
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
			patched := run(text)
			if patched == "" {
				continue
			}
			if diff := cmp.Diff(patched, run(patched)); diff != "" {
				t.Fatalf("a second run changes (-first +second):\n%s", diff)
			}
			run(strings.Replace(patched, "enabled", "not-enabled", 1))
		}
	}
}
