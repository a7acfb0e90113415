package render_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// fleet returns n labelled Clusters, each with a control plane and two pools, behind one proxy Secret, as one stream.
func fleet(n int) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: fleet}\n" +
		"stringData: {httpProxy: \"http://proxy.corp.example.com:3128\", noProxy: .corp.example.com}\n")
	for i := range n {
		name := fmt.Sprintf("c%d", i)
		fmt.Fprintf(&b, fleetCluster, name, i+1)
		for _, pool := range []string{"a", "b"} {
			fmt.Fprintf(&b, fleetPool, name, pool)
		}
	}
	return []byte(b.String())
}

const fleetCluster = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: %[1]s
  namespace: fleet
  labels:
    capi-proxy-patcher.io/enabled: "true"
spec:
  controlPlaneEndpoint: {host: 10.0.0.%[2]d, port: 6443}
  controlPlaneRef:
    apiGroup: controlplane.cluster.x-k8s.io
    kind: KubeadmControlPlane
    name: %[1]s-cp
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata:
  name: %[1]s-cp
  namespace: fleet
spec:
  version: v1.36.0
  kubeadmConfigSpec:
    preKubeadmCommands:
    - hostnamectl set-hostname "{{ ds.meta_data.hostname }}"
`

const fleetPool = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata:
  name: %[1]s-%[2]s
  namespace: fleet
spec:
  clusterName: %[1]s
  template:
    spec:
      clusterName: %[1]s
      bootstrap:
        configRef:
          apiGroup: bootstrap.cluster.x-k8s.io
          kind: KubeadmConfigTemplate
          name: %[1]s-%[2]s
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata:
  name: %[1]s-%[2]s
  namespace: fleet
spec:
  template:
    spec:
      preKubeadmCommands:
      - echo "127.0.0.1   localhost" >>/etc/hosts
`

// TestRender_MatchesAVariableWithAndWithoutDefault gives names and namespaces in turn with a default, with one in
// quotes and without, and compares what clusterctl makes of the outcome with the outcome for what clusterctl makes of
// it.
func TestRender_MatchesAVariableWithAndWithoutDefault(t *testing.T) {
	t.Parallel()
	data := string(fleet(1)) + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: c0-http-proxy, namespace: fleet}\n" +
		"stringData: {httpProxy: \"http://own.example.com:3128\"}\n"
	forms := []string{"${NAME}", "${NAME:=demo}", "${NAME:-demo}", "${NAME=demo}"}
	spaces := []string{"${NS}", "${NS:=\"default\"}", "${NS:-default}"}
	for i := 0; strings.Contains(data, "c0"); i++ {
		data = strings.Replace(data, "c0", forms[i%len(forms)], 1)
	}
	for i := 0; strings.Contains(data, "namespace: fleet}"); i++ { // not plain in a flow mapping
		data = strings.Replace(data, "namespace: fleet}", "namespace: \"${NS}\"}", 1)
	}
	for i := 0; strings.Contains(data, "namespace: fleet"); i++ {
		data = strings.Replace(data, "namespace: fleet", "namespace: "+spaces[i%len(spaces)], 1)
	}
	rendered := func(data []byte) []byte {
		options := of(string(data))
		options.IncludeSecrets = true
		return run(t, options).Output
	}
	clusterctl := func(data []byte) []byte {
		filled, err := yamlprocessor.NewSimpleProcessor().Process(data, func(name string) (string, error) {
			return map[string]string{"NAME": "prod", "NS": "team"}[name], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return filled
	}
	first, last := clusterctl(rendered([]byte(data))), rendered(clusterctl([]byte(data)))
	if !bytes.Equal(first, last) {
		t.Errorf("rendered and then filled in:\n%s\nfilled in and then rendered:\n%s", first, last)
	}
	if n := bytes.Count(last, []byte("name: prod-proxy-files\n")); n < 7 || bytes.Contains(last, []byte("${")) {
		t.Errorf("%d references to the generated Secret:\n%s", n, last)
	}
}

// TestRender_KeepsQuotesOfADefaultOutOfNames names a Secret after a Cluster whose default is in quotes.
func TestRender_KeepsQuotesOfADefaultOutOfNames(t *testing.T) {
	t.Parallel()
	data := bytes.ReplaceAll(fleet(1), []byte("kind: Cluster\nmetadata:\n  name: c0\n"),
		[]byte("kind: Cluster\nmetadata:\n  name: ${NAME:=\"c0\"}\n"))
	data = bytes.ReplaceAll(data, []byte("clusterName: c0"), []byte("clusterName: ${NAME}"))
	result := run(t, render.Options{Inputs: []clusters.Input{{Name: "in.yaml", Data: data}}})
	if n := bytes.Count(result.Output, []byte("name: ${NAME:=c0}-proxy-files\n")); n < 6 {
		t.Errorf("%d references:\n%s", n, result.Output)
	}
}
