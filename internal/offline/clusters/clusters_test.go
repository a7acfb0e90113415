package clusters_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func manifests(t *testing.T, text string, secrets ...clusters.Input) *clusters.Manifests {
	t.Helper()
	m, err := clusters.Read([]clusters.Input{{Name: "in.yaml", Data: []byte(text)}}, secrets, types.NamespacedName{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestManifests_ShowClustersAsRenderSeesThem(t *testing.T) {
	t.Parallel()
	m := manifests(t, `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: one, namespace: team, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec:
  clusterNetwork: {serviceDomain: "${DOMAIN}"}
  infrastructureRef: {kind: DockerCluster, name: one}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerCluster
metadata: {name: one, namespace: team}
spec: {controlPlaneEndpoint: {host: cp.example.com, port: 443}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: pool, namespace: team}
spec: {clusterName: one}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: edge, namespace: team, annotations: {capi-proxy-patcher.io/secret: other}}
spec: {clusterName: one}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: stray, namespace: elsewhere}
spec: {clusterName: one}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: two}
spec: {controlPlaneEndpoint: {host: 192.0.2.1, port: "${PORT}"}}
`)
	type cluster struct {
		Name, Host string
		Port       int32
		Enabled    bool
		Unresolved string
		Pools      []string
	}
	var got []cluster
	for _, c := range m.Clusters() {
		found := cluster{
			Name: c.Object.String(), Host: c.View.EndpointHost, Port: c.View.EndpointPort,
			Enabled: c.View.Enabled, Unresolved: clusters.Unresolved(c.Unresolved),
		}
		for _, pool := range c.Pools {
			found.Pools = append(found.Pools, pool.Name()+" "+m.Pool(pool).Override)
		}
		got = append(got, found)
	}
	want := []cluster{
		{"Cluster team/one", "cp.example.com", 443, true, "spec.clusterNetwork.serviceDomain", []string{"edge other", "pool "}},
		{"Cluster two", "192.0.2.1", 0, false, "", nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIsProxySecret_KnowsWhatIsMeant(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"a key":                    {"{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {httpProxy: eA==}}", true},
		"a key in stringData":      {"{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {noProxy: x}}", true},
		"a key in lower case":      {"{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {httpsproxy: x}}", true},
		"the label":                {`{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {capi-proxy-patcher.io/proxy: ""}}}`, true},
		"a variable of a program":  {"{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {HTTP_PROXY: x}}", false},
		"a user and a password":    {"{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {username: u, password: p}}", false},
		"a ConfigMap":              {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {httpProxy: x}}", false},
		"a Secret of another API":  {"{apiVersion: example.com/v1, kind: Secret, metadata: {name: a}, data: {httpProxy: x}}", false},
		"one that we generated":    {"{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {capi-proxy-patcher.io/generated-for: c}}, data: {httpProxy: x}}", false},
		"data that is not a table": {"{apiVersion: v1, kind: Secret, metadata: {name: a}, data: httpProxy}", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := clusters.IsProxySecret(manifests(t, test.text).Objects()[0]); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestManifests_FindAndDecodeSecrets(t *testing.T) {
	t.Parallel()
	m := manifests(t, "{apiVersion: v1, kind: Secret, metadata: {name: broken}, data: {httpProxy: '!', noProxy: 1}, stringData: {username: 7}}",
		clusters.Input{
			Name: "secret.yaml",
			Data: []byte(
				"{apiVersion: v1, kind: Secret, metadata: {name: any, namespace: x}, stringData: {httpProxy: 'http://p:1'}}"),
		})
	if n := len(m.Objects()); n != 2 {
		t.Fatalf("%d objects", n)
	}
	found, err := m.Resolver(nil).Secrets.ReadSecret(t.Context(), types.NamespacedName{Namespace: "team", Name: "http-proxy"})
	if err != nil || found == nil || found.Name.String() != "team/any" || found.Where != clusters.Place(m.Objects()[1]) ||
		string(found.Data["httpProxy"]) != "http://p:1" {
		t.Errorf("found %+v, error %v", found, err)
	}
	_, err = m.Secret(m.Objects()[0])
	const want = "in.yaml: document 1: Secret broken, data.httpProxy: the value is not base64 (bad-encoding); encode it or use stringData; " +
		"in.yaml: document 1: Secret broken, data.noProxy: the value is not base64 (bad-encoding); encode it or use stringData; " +
		"in.yaml: document 1: Secret broken, stringData.username: the value is not a string (bad-encoding); quote it"
	if !finding.Of(err).Has(contract.ReasonInvalidSettings) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestReadManifests_ReportsEveryFile(t *testing.T) {
	t.Parallel()
	_, err := clusters.Read([]clusters.Input{
		{Name: "a.yaml", Data: []byte("a: [")},
		{Name: "b.yaml", Data: []byte("text")},
	}, []clusters.Input{{Name: "c.yaml", Data: []byte("{}")}}, types.NamespacedName{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, file := range []string{"a.yaml", "b.yaml", "c.yaml"} {
		if !strings.Contains(err.Error(), file) {
			t.Errorf("%v does not name %s", err, file)
		}
	}
}

func TestManifests_ReadWhatClusterctlAndUsersLeaveOpen(t *testing.T) {
	t.Parallel()
	m := manifests(t, `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: "${NAME}", creationTimestamp: null}
spec:
  paused: "${PAUSED}"
  clusterNetwork: {apiServerPort: "${PORT}", pods: {cidrBlocks: ["${PODS}", 10.1.0.0/16, 7]}, services: {cidrBlocks: "${SERVICES}"}}
  controlPlaneEndpoint: {host: cp.example.com, port: "${PORT}"}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: "${NAME}-cp"}
  topology:
    variables: [{name: other, value: "${OTHER}"}]
    controlPlane: {variables: {overrides: [{name: capiProxyPatcher, value: {secretName: "${SECRET}"}}]}}
    workers: {machinePools: [{name: a, variables: {overrides: [{name: capiProxyPatcher, value: {secretName: "${SECRET}"}}]}}]}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: "${NAME}-cp"}
spec:
  replicas: "${CONTROL_PLANE_MACHINE_COUNT}"
  rollout: {after: "${DATE}"}
  version: "${VERSION}"
  kubeadmConfigSpec:
    format: "${FORMAT}"
    files: [{path: /a, permissions: 0644, content: "${A}"}, 5, {path: /b, contentFrom: {secret: {name: "${B}", key: c}}}]
    preKubeadmCommands: [5, "b"]
    initConfiguration: {nodeRegistration: {kubeletExtraArgs: [{name: a, value: 5}, {name: b, value: c}], taints: "${TAINTS}"}}
`)
	c := m.Clusters()[0]
	const unresolved = "spec.clusterNetwork.pods.cidrBlocks[0], spec.clusterNetwork.services.cidrBlocks, " +
		"spec.topology.controlPlane.variables.overrides[capiProxyPatcher], " +
		"spec.topology.workers.machinePools[a].variables.overrides[capiProxyPatcher]"
	if got := clusters.Unresolved(c.Unresolved); got != unresolved {
		t.Errorf("unresolved:\n%s\nwant:\n%s", got, unresolved)
	}
	if c.View.Paused || c.View.EndpointHost != "cp.example.com" || c.View.EndpointPort != 0 || c.Invalid != nil ||
		!slices.Equal(c.View.PodCIDRs, []string{"10.1.0.0/16"}) || c.View.ServiceCIDRs != nil || c.Settings.SecretName != "" ||
		c.View.ControlPlaneName != "${NAME}-cp" {
		t.Errorf("read %+v, %v", c.View, c.Invalid)
	}
	want := patch.Spec{
		Files: []patch.File{
			{Path: "/a", Content: "${A}"}, {}, {Path: "/b", ContentFrom: patch.SecretKey{Name: "${B}", Key: "c"}},
		},
		PreKubeadmCommands: []string{"", "b"}, CRISockets: []string{"", ""}, KubeletArgs: []string{"a=", "b=c"},
	}
	controlPlane := m.Objects()[1]
	if diff := cmp.Diff(want, kinds.View(m.BootstrapOf(controlPlane))); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if m.BootstrapOf(c.Object) != nil {
		t.Error("a Cluster has no bootstrap spec")
	}
}

// TestCheckPatches_FindsWhatDecidesAboutDropIns in the values of inline patches, in any form.
func TestCheckPatches_FindsWhatDecidesAboutDropIns(t *testing.T) {
	t.Parallel()
	const ours, alone, others = "/etc/systemd/system/kubelet.service.d/http-proxy.conf", "leaves a template alone", "may have other values"
	for value, want := range map[string]string{
		"value: {path: " + ours + ", content: x}":                                        alone,
		"value: [{path: /etc/capi-proxy-patcher/proxy.env, content: x}]":                 alone,
		"valueFrom: {template: \"path: " + ours + "\\ncontent: {{ .x }}\\n\"}":           alone,
		"value: 'mkdir -p /a && cat > /etc/systemd/system/containerd.service.d/zz.conf'": others,
		"value: {path: /etc/systemd/system/kubelet.service.d/20-a.conf, content: x}":     "",
		"value: 'mkdir -p /etc/systemd/system/containerd.service.d'":                     "",
		"valueFrom: {variable: x}":                                                       "",
	} {
		m := manifests(t, "apiVersion: cluster.x-k8s.io/v1beta1\nkind: ClusterClass\nmetadata: {name: a}\nspec:\n  patches:\n"+
			"  - {name: a, external: {generateExtension: a.b}}\n  - name: b\n    definitions:\n    - jsonPatches:\n"+
			"      - op: add\n        path: /spec/template/spec/files/-\n        "+value+"\n")
		var got []string
		for _, f := range clusters.CheckPatches(m.Objects()[0]) {
			got = append(got, f.String())
		}
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "overridden: spec.patches[1]: names ") || !strings.Contains(got[0], want)) {
			t.Errorf("%s: %q", value, got)
		}
	}
}
