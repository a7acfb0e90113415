package world

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// The tests with an API server reconcile every Cluster every two seconds, so they do not show what enqueues a Cluster.
func TestSecrets_FindTheClustersThatMayUseThem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cluster string
		want    []string
	}{
		"no name": {`{metadata: {name: one}}`, []string{"http-proxy"}},
		"a name in the annotation": {
			`{metadata: {name: one, annotations: {capi-proxy-patcher.io/secret: corp}}}`, []string{"corp"},
		},
		"a name in the variable": {
			`{metadata: {name: one}, spec: {topology: {classRef: {name: c}, version: v1, variables: [{name: capiProxyPatcher, value: {secretName: corp}}]}}}`,
			[]string{"corp"},
		},
		"names of pools, each once": {
			`{metadata: {name: one}, spec: {topology: {classRef: {name: c}, version: v1, workers: {
			   machineDeployments: [
			     {name: a, class: w, variables: {overrides: [{name: capiProxyPatcher, value: {secretName: edge}}]}},
			     {name: b, class: w, metadata: {annotations: {capi-proxy-patcher.io/secret: edge}}},
			     {name: c, class: w, metadata: {annotations: {capi-proxy-patcher.io/secret: none}}},
			     {name: d, class: w}],
			   machinePools: [{name: a, class: w, metadata: {annotations: {capi-proxy-patcher.io/secret: lab}}}]}}}}`,
			[]string{"edge", "http-proxy", "lab"},
		},
		"a variable that cannot be used hides no pool": {
			`{metadata: {name: one}, spec: {topology: {classRef: {name: c}, version: v1, variables: [{name: capiProxyPatcher, value: "{{"}], workers: {
			   machineDeployments: [{name: b, class: w, metadata: {annotations: {capi-proxy-patcher.io/secret: edge}}}]}}}}`,
			[]string{"edge", "http-proxy"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, secretNames(api.Read[clusterv1.Cluster](t, test.cluster, &clusterv1.Cluster{}))); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
	if names := secretNames(&corev1.Secret{}); names != nil {
		t.Errorf("names of a Secret: %q", names)
	}
}

func TestTopology_TemplatesAreFoundByTheirCluster(t *testing.T) {
	t.Parallel()
	const managed = `spec: {template: {spec: {files: [{path: /etc/capi-proxy-patcher/proxy.env, contentFrom: {secret: {name: s, key: proxy.env}}}]}}}`
	for name, test := range map[string]struct {
		template string
		want     []string
	}{
		"owned and patched":       {`{metadata: {labels: {topology.cluster.x-k8s.io/owned: "", cluster.x-k8s.io/cluster-name: one}}, ` + managed + `}`, []string{"one"}},
		"owned, without entries":  {`{metadata: {labels: {topology.cluster.x-k8s.io/owned: "", cluster.x-k8s.io/cluster-name: one}}}`, nil},
		"patched, and the user's": {`{metadata: {labels: {cluster.x-k8s.io/cluster-name: one}}, ` + managed + `}`, nil},
		"of nobody":               {`{metadata: {labels: {topology.cluster.x-k8s.io/owned: ""}}, ` + managed + `}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want,
				topologyOf(api.Read[bootstrapv1.KubeadmConfigTemplate](t, test.template, &bootstrapv1.KubeadmConfigTemplate{}))); diff != "" {
				t.Errorf("Clusters (-want +got):\n%s", diff)
			}
		})
	}
	if values := topologyOf(&corev1.Secret{}); values != nil {
		t.Errorf("values of a Secret: %q", values)
	}
}

func TestClusterOf_WantsNameAndLabelToAgree(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ secret, want string }{
		"of the Cluster":         {`{name: one-proxy-files, labels: {capi-proxy-patcher.io/generated-for: one}}`, "one"},
		"of a pool":              {`{name: one.a.md.proxy-files, labels: {capi-proxy-patcher.io/generated-for: one}}`, "one"},
		"a copy":                 {`{name: one-proxy-files-saved, labels: {capi-proxy-patcher.io/generated-for: one}}`, ""},
		"a copy, saved first":    {`{name: saved-one-proxy-files, labels: {capi-proxy-patcher.io/generated-for: one}}`, ""},
		"with a user's own name": {`{name: one, labels: {capi-proxy-patcher.io/generated-for: one}}`, ""},
		"no label":               {`{name: one-proxy-files}`, ""},
		"an empty label":         {`{name: x, labels: {capi-proxy-patcher.io/generated-for: ""}}`, ""},
		"of an output": {
			`{name: one-proxy-env, labels: {capi-proxy-patcher.io/generated-for: one, capi-proxy-patcher.io/output: proxy-env}}`, "one",
		},
		"a copy of that": {
			`{name: one-proxy-env-old, labels: {capi-proxy-patcher.io/generated-for: one, capi-proxy-patcher.io/output: proxy-env}}`, "",
		},
		"an output by the name of a Secret of nodes": {
			`{name: one-proxy-files, labels: {capi-proxy-patcher.io/generated-for: one, capi-proxy-patcher.io/output: x}}`, "",
		},
	} {
		if got := ClusterOf(api.Read[corev1.Secret](t, `{metadata: `+test.secret+`}`, &corev1.Secret{})); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
