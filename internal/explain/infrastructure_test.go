package explain_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// TestExplain_AsksForWhatInfrastructureHas has containerd and kubelet, which are Go programs, reach nodes, metadata and
// internal hosts of a Cluster directly, and the internet through the proxy.
func TestExplain_AsksForWhatInfrastructureHas(t *testing.T) {
	t.Parallel()
	client, err := match.Lookup("go")
	if err != nil {
		t.Fatal(err)
	}
	for kind, object := range map[string]string{
		"AWSCluster":     "spec: {region: us-east-1, network: {vpc: {cidrBlock: 10.50.0.0/16}}}",
		"AzureCluster":   "spec: {networkSpec: {vnet: {cidrBlocks: [10.0.0.0/8]}, apiServerLB: {frontendIPs: [{privateIP: 10.0.0.100}]}}}",
		"VSphereCluster": "spec: {server: 'vcenter.corp.example:8443'}",
		"ProxmoxCluster": "spec: {ipv4Config: {addresses: [10.9.0.1], gateway: 10.0.0.1, prefix: 24}}",
		"PacketCluster":  "spec: {projectID: p}",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var value map[string]any
			if err := yaml.Unmarshal([]byte(object), &value); err != nil {
				t.Fatal(err)
			}
			facts := infrastructure.Read(kind, "prod", value)
			in := noproxy.Input{PodCIDRs: []string{"192.0.2.0/24"}, EndpointHost: "cp.example.org", Infrastructure: facts.Infrastructure}
			composed, err := noproxy.Compose(in)
			if err != nil {
				t.Fatal(err)
			}
			cluster, err := explain.NewCluster(in, 0)
			if err != nil {
				t.Fatal(err)
			}
			report, err := explain.Explain(explain.Input{
				NoProxy: composed.Value, Entries: composed.Entries, Destinations: cluster.Destinations(), Clients: []match.Client{client},
			})
			if err != nil {
				t.Fatal(err)
			}
			internal := 0
			for _, row := range report.Destinations {
				want := match.Direct
				if row.CounterCheck {
					want = match.Proxied
				}
				if row.Answers[0].Verdict != want {
					t.Errorf("%s, %s, is %s", row.Name, row.What, row.Answers[0].Verdict)
				}
				if strings.Contains(row.What, "node") || strings.Contains(row.What, "internal") || strings.Contains(row.What, "metadata") {
					internal++
				}
			}
			if internal == 0 {
				t.Error("explain asks for nothing that the object tells")
			}
		})
	}
}
