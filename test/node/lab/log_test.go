//go:build node

package lab

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRequests(t *testing.T) {
	t.Parallel()
	got, err := ParseRequests("1790000000.001 10.77.0.10 TCP_TUNNEL/200 CONNECT registry.k8s.io:443 us%25er\n" +
		"1790000000.002 10.77.0.10 TCP_DENIED/407 CONNECT [fd00::1]:6443 -\n" +
		"1790000000.003 10.77.0.11 TCP_MISS/200 GET http://example.com/a?b=c -\n" +
		"1790000000.003 10.77.0.11 NONE_NONE/000 - error:transaction-end-before-headers -\n" +
		"1790000000.004 10.77.0.11 TCP_MISS/200 GET https://example.com:8443/ node\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Request{
		{"10.77.0.10", "TCP_TUNNEL/200", "CONNECT", "registry.k8s.io", "443", "us%25er"},
		{"10.77.0.10", "TCP_DENIED/407", "CONNECT", "fd00::1", "6443", "-"},
		{"10.77.0.11", "TCP_MISS/200", "GET", "example.com", "80", "-"},
		{"10.77.0.11", "TCP_MISS/200", "GET", "example.com", "8443", "node"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestParseRequests_RefusesWhatItCannotJudge(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a line with a field too few":     "1 10.77.0.10 TCP_TUNNEL/200 CONNECT registry.k8s.io:443\n",
		"a line with a field too many":    "1 10.77.0.10 TCP_TUNNEL/200 CONNECT registry.k8s.io:443 - -\n",
		"a CONNECT without a port":        "1 10.77.0.10 TCP_TUNNEL/200 CONNECT registry.k8s.io -\n",
		"a request without a destination": "1 10.77.0.10 NONE/400 GET error:invalid-request -\n",
		"an empty line":                   "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := ParseRequests(text); err == nil {
				t.Errorf("%v, want an error", got)
			}
		})
	}
}

func TestInCluster(t *testing.T) {
	t.Parallel()
	networks := map[string]netip.Prefix{
		"a Pod": netip.MustParsePrefix("10.244.0.0/16"), "a Service": netip.MustParsePrefix("10.96.0.0/12"),
		"the endpoint": netip.MustParsePrefix("10.77.0.10/32"),
	}
	for host, want := range map[string]string{
		"10.244.3.4": "a Pod", "::ffff:10.244.3.4": "a Pod", "10.96.0.1": "a Service", "10.77.0.10": "the endpoint",
		"127.0.0.53": "loopback", "::1": "loopback", "localhost": "loopback", "169.254.169.254": "metadata",
		"metadata.google.internal": "metadata", "kubernetes.default.svc": "a Service",
		"API.kube-system.svc.cluster.local.": "a Service", "cluster.local": "a Service",
		"registry.k8s.io": "", "203.0.113.10": "", "10.77.0.11": "", "notcluster.local": "", "svc.example.com": "",
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			got, inside := InCluster(host, networks, "cluster.local")
			if got != want || inside != (want != "") {
				t.Errorf("%q, %t, want %q", got, inside, want)
			}
		})
	}
}
