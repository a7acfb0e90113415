package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// fleet returns n labelled Clusters, each with a control plane, two pools and their infrastructure, behind one proxy
// Secret, as one stream.
func fleet(n int) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: fleet}\n" +
		"stringData: {httpProxy: \"http://proxy.corp.example.com:3128\", noProxy: .corp.example.com}\n")
	for i := range n {
		name := fmt.Sprintf("c%d", i)
		fmt.Fprintf(&b, fleetCluster, name, i/250, i%250+1)
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
  clusterNetwork:
    pods:
      cidrBlocks: [192.168.0.0/16]
    services:
      cidrBlocks: [10.96.0.0/12]
  controlPlaneRef:
    apiGroup: controlplane.cluster.x-k8s.io
    kind: KubeadmControlPlane
    name: %[1]s-cp
  infrastructureRef:
    apiGroup: infrastructure.cluster.x-k8s.io
    kind: VSphereCluster
    name: %[1]s
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereCluster
metadata: {name: %[1]s, namespace: fleet}
spec:
  controlPlaneEndpoint: {host: 10.0.%[2]d.%[3]d, port: 6443}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata:
  name: %[1]s-cp
  namespace: fleet
spec:
  replicas: 3
  version: v1.36.0
  machineTemplate:
    spec:
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: VSphereMachineTemplate
        name: %[1]s-cp
  kubeadmConfigSpec:
    initConfiguration:
      nodeRegistration:
        name: '{{ ds.meta_data.hostname }}'
    files:
    - path: /etc/kubernetes/manifests/kube-vip.yaml
      owner: root:root
      content: |
        apiVersion: v1
        kind: Pod
        metadata:
          name: kube-vip
    preKubeadmCommands:
    - hostnamectl set-hostname "{{ ds.meta_data.hostname }}"
    - echo "::1         ipv6-localhost ipv6-loopback" >/etc/hosts
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereMachineTemplate
metadata: {name: %[1]s-cp, namespace: fleet}
spec:
  template:
    spec: {numCPUs: 2, memoryMiB: 8192}
`

const fleetPool = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata:
  name: %[1]s-%[2]s
  namespace: fleet
spec:
  clusterName: %[1]s
  replicas: 3
  template:
    spec:
      clusterName: %[1]s
      version: v1.36.0
      bootstrap:
        configRef:
          apiGroup: bootstrap.cluster.x-k8s.io
          kind: KubeadmConfigTemplate
          name: %[1]s-%[2]s
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: VSphereMachineTemplate
        name: %[1]s-%[2]s
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereMachineTemplate
metadata: {name: %[1]s-%[2]s, namespace: fleet}
spec:
  template:
    spec: {numCPUs: 2, memoryMiB: 8192}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata:
  name: %[1]s-%[2]s
  namespace: fleet
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          name: '{{ ds.meta_data.hostname }}'
      preKubeadmCommands:
      - hostnamectl set-hostname "{{ ds.meta_data.hostname }}"
      - echo "127.0.0.1   localhost" >>/etc/hosts
`

// benchmark runs f on fleets; the time of one Cluster is to be the same in all.
func benchmark(b *testing.B, f func(clusters.Input) error) {
	b.Helper()
	for _, n := range []int{100, 400, 1000} {
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			input := clusters.Input{Name: "fleet.yaml", Data: fleet(n)}
			b.SetBytes(int64(len(input.Data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f(input); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRender(b *testing.B) {
	benchmark(b, func(input clusters.Input) error {
		_, err := render.Render(b.Context(), render.Options{Inputs: []clusters.Input{input}})
		return err
	})
}

func BenchmarkDiff(b *testing.B) {
	benchmark(b, func(input clusters.Input) error {
		result, err := render.Render(b.Context(), render.Options{Inputs: []clusters.Input{input}})
		result.Diff()
		return err
	})
}

func BenchmarkLint(b *testing.B) {
	benchmark(b, func(input clusters.Input) error {
		_, err := lint.Run(b.Context(), lint.Options{Inputs: []clusters.Input{input}})
		return err
	})
}
