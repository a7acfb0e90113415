package render_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// exported are objects of a management cluster in which a drop-in of the user was adopted: originals is the Secret's
// key, targets the annotation of the Cluster.
func exported(originals, targets, label string) string {
	return `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: one
  namespace: ns
  labels: {capi-proxy-patcher.io/enabled: "` + label + `"}
  annotations: {capi-proxy-patcher.io/adopt: "true", capi-proxy-patcher.io/targets: "` + targets + `"}
spec:
  controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp, namespace: ns}
spec:
  version: v1.36.3
  kubeadmConfigSpec:
    files:
    - path: /etc/motd # mine
      content: hello
    - path: /etc/systemd/system/kubelet.service.d/http-proxy.conf
      owner: root:root
      permissions: "0644"
      content: |
        # Managed by capi-proxy-patcher
        [Service]
        EnvironmentFile=/etc/capi-proxy-patcher/proxy.env
---
apiVersion: v1
kind: Secret
metadata:
  name: one-proxy-files
  namespace: ns
  labels: {capi-proxy-patcher.io/generated-for: one}
data:
  adopted-files.json: ` + base64.StdEncoding.EncodeToString([]byte(originals)) + `
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: ns}
stringData: {httpProxy: "http://proxy.example.com:3128"}
`
}

func TestRender_RestoresAnOriginalInTheInput(t *testing.T) {
	t.Parallel()
	const originals = `{"KubeadmControlPlane/cp":{"/etc/systemd/system/kubelet.service.d/http-proxy.conf":` +
		`{"append":true,"content":"[Service]\nEnvironment=\"A=%25'$x{{y}}\"\n","path":"/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf"}}}`
	const back = `    files:
    - path: /etc/motd # mine
      content: hello
    - append: true
      content: |
        [Service]
        Environment="A=%25'$x{{y}}"
      path: /usr/lib/systemd/system/kubelet.service.d/http-proxy.conf
`
	for name, input := range map[string]string{
		"no label":                exported(originals, "", "false"),
		"targets without kubelet": exported(originals, "containerd", "true"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(input string) string {
				result, err := render.Render(t.Context(), render.Options{Inputs: []render.Input{{Name: "-", Data: []byte(input)}}})
				if err != nil {
					t.Fatal(err)
				}
				return string(result.Output)
			}
			got := run(input)
			if !strings.Contains(got, back) {
				t.Errorf("the original is not back:\n%s", got)
			}
			if diff := cmp.Diff(got, run(got)); diff != "" {
				t.Errorf("a second run changes (-first +second):\n%s", diff)
			}
		})
	}
	for _, damaged := range []string{"[]", `{"KubeadmControlPlane/cp":{"/x":{}}}`} {
		_, err := render.Render(t.Context(), render.Options{Inputs: []render.Input{{Name: "-", Data: []byte(exported(damaged, "", "false"))}}})
		if err == nil || !strings.Contains(err.Error(), "data.adopted-files.json: not a JSON object") {
			t.Errorf("%s: error %v", damaged, err)
		}
	}
}
