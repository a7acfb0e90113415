package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
)

const metalStack = `apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: MetalStackCluster
metadata: {name: infra, namespace: ns}
spec: {controlPlaneIP: 203.0.113.9}
`

// TestReadManifests_ReadsTheInfrastructure compares what explain, lint and render compose from the same manifests.
func TestReadManifests_ReadsTheInfrastructure(t *testing.T) {
	t.Parallel()
	cluster := func(kind, more string) string {
		return `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: ns, labels: {capi-proxy-patcher.io/enabled: "true"}` + more + `}
spec: {clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}}, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: ` + kind + `, name: infra}}
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: ns}
stringData: {httpProxy: "http://p:1"}
---
`
	}
	const vsphere = `apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereCluster
metadata: {name: infra, namespace: ns}
spec: {server: SERVER, controlPlaneEndpoint: {host: 192.0.2.7, port: 6443}}
`
	for name, test := range map[string]struct {
		manifests  string
		want       []string
		unresolved string
		warning    string
	}{
		"the object": {
			cluster("VSphereCluster", "") + strings.Replace(vsphere, "SERVER", "vcenter.corp.example", 1),
			[]string{"192.0.2.7 spec.controlPlaneEndpoint.host", "vcenter.corp.example VSphereCluster infra, spec.server"},
			"", "",
		},
		"the group left out": {
			cluster("VSphereCluster", ", annotations: {capi-proxy-patcher.io/no-proxy-groups: -infrastructure}") + strings.Replace(vsphere, "SERVER", "vcenter.corp.example", 1),
			[]string{"192.0.2.7 spec.controlPlaneEndpoint.host"},
			"", "",
		},
		"a variable": {
			cluster("VSphereCluster", "") + strings.Replace(vsphere, "SERVER", "'${VSPHERE_SERVER}'", 1),
			[]string{"192.0.2.7 spec.controlPlaneEndpoint.host"},
			"VSphereCluster infra, spec.server", "",
		},
		"no object": {
			cluster("VSphereCluster", ""), nil, "",
			"infrastructure-unknown: VSphereCluster infra is not known yet, so NO_PROXY lacks its networks and internal hosts",
		},
		"an endpoint of its own":     {cluster("MetalStackCluster", "") + metalStack, []string{"203.0.113.9 spec.controlPlaneEndpoint.host"}, "", ""},
		"a kind that tells nothing":  {cluster("DockerCluster", ""), nil, "", ""},
		"a topology without a class": {strings.Replace(cluster("X", ""), "infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: X, name: infra}", "topology: {classRef: {name: c}, version: v1.36.3}", 1), nil, "", "infrastructure-unknown: the kind of infrastructure is not known yet, so NO_PROXY lacks its metadata service and its networks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifests, err := clusters.Read([]clusters.Input{{Name: "-", Data: []byte(test.manifests)}}, nil, types.NamespacedName{})
			if err != nil {
				t.Fatal(err)
			}
			read := manifests.Clusters()[0]
			resolution, err := manifests.Resolver(nil).Resolve(t.Context(), read.View, read.Settings.Options, "")
			if err != nil {
				t.Fatal(err)
			}
			var got, warnings []string
			for _, e := range resolution.NoProxy.Entries {
				if e.Group == noproxy.GroupEndpoint || e.Group == noproxy.GroupInfrastructure {
					got = append(got, e.Value+" "+e.Origin())
				}
			}
			for _, w := range resolution.Warnings {
				if w.Code == noproxy.CodeInfrastructureUnknown || w.Code == noproxy.CodeInfrastructureIgnored {
					warnings = append(warnings, string(w.Code)+": "+w.Message)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := clusters.Unresolved(read.Unresolved); text != test.unresolved {
				t.Errorf("unresolved %q, want %q", text, test.unresolved)
			}
			if text := strings.Join(warnings, "\n"); text != test.warning {
				t.Errorf("warnings %q, want %q", text, test.warning)
			}
		})
	}
}
