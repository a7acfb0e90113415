package settings_test

import (
	"maps"
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

func TestProxiedNodes_AreThoseThatOtherNodesAskThroughTheProxy(t *testing.T) {
	t.Parallel()
	internal := func(values ...string) (addresses clusterv1.MachineAddresses) {
		for _, value := range values {
			addresses = append(addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: value})
		}
		return addresses
	}
	of := func(kind clusterv1.MachineAddressType, value string) clusterv1.MachineAddress {
		return clusterv1.MachineAddress{Type: kind, Address: value}
	}
	static := settings.Options{Targets: []contract.Target{contract.TargetStaticPods}}
	for name, test := range map[string]struct {
		noProxy   string
		secret    map[string]string
		options   settings.Options
		addresses clusterv1.MachineAddresses
		want      string
	}{
		"not in NO_PROXY":                     {"", nil, static, internal("10.77.0.61"), "Machine m at 10.77.0.61"},
		"in a network":                        {"10.77.0.0/24", nil, static, internal("10.77.0.61"), ""},
		"beside the network":                  {"10.77.1.0/24", nil, static, internal("10.77.0.61"), "Machine m at 10.77.0.61"},
		"by itself":                           {"10.77.0.61", nil, static, internal("10.77.0.61"), ""},
		"a star":                              {"*", nil, static, internal("10.77.0.61"), ""},
		"IPv6":                                {"10.0.0.0/8", nil, static, internal("10.0.0.1", "2001:db8::1"), "Machine m at 2001:db8::1"},
		"IPv6 in a network":                   {"10.0.0.0/8,2001:db8::/32", nil, static, internal("10.0.0.1", "2001:db8::1"), ""},
		"in the network of Pods":              {"", nil, static, internal("10.244.0.7"), ""},
		"an external one beside":              {"10.0.0.0/8", nil, static, append(internal("10.0.0.1"), of("ExternalIP", "203.0.113.1")), ""},
		"only an external one":                {"", nil, static, clusterv1.MachineAddresses{of("ExternalIP", "203.0.113.1"), of("Hostname", "m")}, "Machine m at 203.0.113.1"},
		"names beside an address":             {"10.0.0.0/8", nil, static, append(internal("10.0.0.1"), of("Hostname", "m"), of("InternalDNS", "m.corp")), ""},
		"only names":                          {".corp", nil, static, clusterv1.MachineAddresses{of("InternalDNS", "m.corp"), of("Hostname", "m.other"), of("ExternalDNS", "x")}, "Machine m at m.other"},
		"what only the node has":              {"", nil, static, internal("fe80::1", "169.254.1.1", "127.0.0.1", "::1", "0.0.0.0", "x", ""), ""},
		"many":                                {"", nil, static, internal("1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4", "1.0.0.5", "1.0.0.5"), "Machine m at 1.0.0.1, Machine m at 1.0.0.2, Machine m at 1.0.0.3 and 2 more"},
		"no addresses yet":                    {"", nil, static, nil, ""},
		"kubelet and containerd alone":        {"", nil, settings.Options{Targets: []contract.Target{contract.TargetKubelet}}, internal("10.77.0.61"), ""},
		"credentials, which static Pods lack": {"", map[string]string{"username": "u", "password": "p"}, static, internal("10.77.0.61"), ""},
		"a name with an escape sequence":      {"", nil, static, clusterv1.MachineAddresses{of("Hostname", "a\x1b(0b")}, "Machine m at a (0b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := map[string]string{"httpProxy": "http://p.example.com:1", "noProxy": test.noProxy}
			maps.Copy(data, test.secret)
			reader := &secrets{data: map[string]map[string]string{"team/http-proxy": data}}
			cluster := settings.Cluster{
				Namespace: "team", Name: "one", EndpointHost: "cp.example.com", PodCIDRs: []string{"10.244.0.0/16"},
			}
			resolution, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), cluster, test.options, "")
			if err != nil {
				t.Fatal(err)
			}
			machine := clusterv1.Machine{Status: clusterv1.MachineStatus{Addresses: test.addresses}}
			machine.Name = "m"
			found := resolution.ProxiedNodes(test.options, []clusterv1.Machine{machine})
			got := ""
			if len(found) > 0 {
				got, _ = strings.CutSuffix(found[0].Message, ", which NO_PROXY does not have")
				_, got, _ = strings.Cut(got, "through the proxy: ")
			}
			if test.want != got {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
