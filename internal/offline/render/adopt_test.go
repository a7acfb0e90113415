package render_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
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
				result, err := render.Render(t.Context(), render.Options{Inputs: []clusters.Input{{Name: "-", Data: []byte(input)}}})
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
		_, err := render.Render(t.Context(),
			render.Options{Inputs: []clusters.Input{{Name: "-", Data: []byte(exported(damaged, "", "false"))}}})
		if err == nil || !strings.Contains(err.Error(), "data.adopted-files.json: not a JSON object") {
			t.Errorf("%s: error %v", damaged, err)
		}
	}
}

// ownFile is a Cluster whose control plane has a drop-in of the user's. annotations are those of the Cluster, endpoint
// its host.
func ownFile(annotations, endpoint string) string {
	return `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: one
  namespace: ns
  labels: {capi-proxy-patcher.io/enabled: "true"}
  annotations: {` + annotations + `}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}}
  controlPlaneEndpoint: {host: "` + endpoint + `", port: 6443}
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
    - content: |
        [Service]
        Environment="A=%25'$x{{y}}"
      owner: me
      path: /usr/lib/systemd/system/kubelet.service.d/http-proxy.conf
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: ns}
stringData: {httpProxy: "http://proxy.example.com:3128"}
`
}

func TestRender_AdoptsAsTheControllerDoes(t *testing.T) {
	t.Parallel()
	const adopt = `capi-proxy-patcher.io/adopt: "true"`
	render1 := func(t *testing.T, input string) string {
		t.Helper()
		result, err := render.Render(t.Context(), render.Options{
			Inputs: []clusters.Input{{Name: "-", Data: []byte(input)}}, IncludeSecrets: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(result.Output)
	}
	for name, test := range map[string]struct {
		annotations, endpoint string
		data                  []string // keys of the generated Secret
	}{
		"Reference":                     {adopt, "192.0.2.1", []string{"adopted-files.json", "no-proxy-origins.txt", "proxy.env", "setup.sh", "trusted-ca.pem"}},
		"Reference without an endpoint": {adopt, "", []string{"adopted-files.json"}},
		"Inline":                        {adopt + ", capi-proxy-patcher.io/delivery: Inline", "192.0.2.1", []string{"adopted-files.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input := ownFile(test.annotations, test.endpoint)
			got := render1(t, input)
			if strings.Contains(got, "owner: me") ||
				!strings.Contains(got, "path: /etc/systemd/system/kubelet.service.d/http-proxy.conf") {
				t.Error("the managed file has not replaced the user's")
			}
			_, generated, _ := strings.Cut(got, "\ndata:\n")
			var keys []string
			for line := range strings.Lines(generated) {
				if key, _, found := strings.Cut(line, ":"); found && strings.HasPrefix(key, "  ") && strings.Count(key, " ") == 2 &&
					len(keys) < len(test.data) {
					keys = append(keys, strings.TrimSpace(key))
				}
			}
			if diff := cmp.Diff(test.data, keys); diff != "" {
				t.Errorf("keys of the generated Secret (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, render1(t, got)); diff != "" {
				t.Errorf("a second run changes (-first +second):\n%s", diff)
			}
			back := render1(t, strings.Replace(got, "capi-proxy-patcher.io/enabled: \"true\"",
				"capi-proxy-patcher.io/enabled: \"false\"", 1))
			want, _, _ := strings.Cut(strings.Replace(input, "enabled: \"true\"", "enabled: \"false\"", 1),
				"---\napiVersion: v1\nkind: Secret")
			back, _, _ = strings.Cut(back, "---\napiVersion: v1\nkind: Secret")
			if diff := cmp.Diff(want, back); diff != "" {
				t.Errorf("without the label it is not as it was (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRender_NamesAdoptInAConflict(t *testing.T) {
	t.Parallel()
	const file = "conflict: spec.kubeadmConfigSpec.files[1]: already writes /usr/lib/systemd/system/kubelet.service.d/http-proxy.conf; remove that file from the spec, " +
		"or set annotation capi-proxy-patcher.io/targets of the Cluster to containerd,kubeadm,trust"
	for name, test := range map[string]struct {
		annotations string
		want        string
	}{
		"without adopt": {"", file + `; or set annotation capi-proxy-patcher.io/adopt of the Cluster to "true" and render with --include-secrets to let the product take over such files`},
		"with it but without a Secret": {`capi-proxy-patcher.io/adopt: "true"`, file + "; annotation capi-proxy-patcher.io/adopt takes such files over with --include-secrets, " +
			"because the generated Secret keeps their originals"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := render.Render(t.Context(),
				render.Options{Inputs: []clusters.Input{{Name: "-", Data: []byte(ownFile(test.annotations, "192.0.2.1"))}}})
			if err == nil || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("error %v\nwant %s", err, test.want)
			}
		})
	}
}
