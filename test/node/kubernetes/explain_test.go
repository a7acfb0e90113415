//go:build node

package kubernetes_test

import (
	"net"
	"net/url"
	"strings"
	"testing"
)

const (
	stepExplain = "explain, curl and a Go client about 20 destinations"
	// mirrorHost is a name of the outside that containerd never asks for.
	mirrorHost = "mirror.example.net"
	// These ask for all URLs at once, with the variables that containerd has. squid needs a moment to write its log.
	askWithCurl = `set -a; . /etc/capi-proxy-patcher/proxy.env; set +a
for url; do curl --silent --insecure --max-time 6 --output /dev/null "$url" & done; wait; sleep 1`
	askWithGo = `set -a; . /etc/capi-proxy-patcher/proxy.env; set +a
for url; do timeout 6 probe get "$url" >/dev/null 2>&1 & done; wait; sleep 1`
)

// destinations are asked for. No two have the same host and port.
func destinations() []string {
	return []string{
		"https://10.77.0.10:6443/healthz", "https://10.96.0.1/healthz", "http://10.96.0.10/", "http://10.244.0.1/", "http://10.244.1.7:8080/",
		"http://169.254.169.254/latest/", "http://127.0.0.1:10248/healthz", "http://localhost:10248/healthz", "https://kubernetes.default.svc/",
		"https://kubernetes.default.svc.cluster.local/", "http://corp.example.com/", "http://a.corp.example.com/", "http://192.0.2.7/",
		"http://x.intern.example.org/",
		"https://" + mirrorHost + "/v2/", "http://notcorp.example.com/", "http://10.97.0.1/", "https://203.0.113.10/v2/", "https://10.77.0.11:10250/healthz",
		// Here the two differ.
		"http://intern.example.org/",
	}
}

// explain compares what capi-proxy-patcher explain says with what curl and a Go client on the node do, as the proxy's
// log has it. It returns the destinations that went through the proxy, as host:port.
func (s *suite) explain(t *testing.T, c cluster, n node) []string {
	t.Helper()
	s.report.Step(t, stepExplain)
	t.Run("the API server answers at its Service, without the proxy", func(t *testing.T) {
		// Until kube-proxy, which has just started, has written its rules.
		answer := n.MustRun(t, "sh", "-c", `set -a; . /etc/capi-proxy-patcher/proxy.env; set +a
			curl --silent --insecure --fail --retry 30 --retry-delay 1 --retry-all-errors https://10.96.0.1/healthz`)
		if answer != "ok" {
			t.Errorf("answer %q, want ok", answer)
		}
	})
	fields := strings.Fields(n.MustRun(t, "curl", "--version"))
	var asked []string
	agreed := 0
	for _, client := range []struct{ name, script string }{{"curl@" + fields[1], askWithCurl}, {"go-nethttp", askWithGo}} {
		t.Run(client.name, func(t *testing.T) {
			said := said(t, c, client.name)
			before := len(s.lab.Requests(t, "main"))
			n.MustRun(t, append([]string{"sh", "-c", client.script, "sh"}, destinations()...)...)
			seen := map[string]bool{}
			for _, r := range s.lab.Requests(t, "main")[before:] {
				seen[net.JoinHostPort(r.Host, r.Port)] = true
			}
			for _, destination := range destinations() {
				where := hostPort(t, destination)
				verdict := map[bool]string{true: "proxied", false: "direct"}[seen[where]]
				if said[destination] != verdict {
					t.Errorf("%s: explain says %q, it was %s", destination, said[destination], verdict)
					continue
				}
				agreed++
				if seen[where] {
					asked = append(asked, where)
				}
			}
		})
	}
	s.report.Saw(t, stepExplain, "%d of %d agree, %d through the proxy", agreed, 2*len(destinations()), len(asked))
	return asked
}

// said is the verdict of explain for a client, by destination.
func said(t *testing.T, c cluster, client string) map[string]string {
	t.Helper()
	var answer struct {
		Destinations []struct {
			Destination string
			Answers     []struct{ Verdict string }
		}
	}
	decode(t, c.explain(t, append([]string{"-o", "json", "--client", client}, destinations()...)...), &answer)
	if len(answer.Destinations) != len(destinations()) {
		t.Fatalf("explain answers about %d destinations, want %d", len(answer.Destinations), len(destinations()))
	}
	said := map[string]string{}
	for i, d := range answer.Destinations {
		said[destinations()[i]] = d.Answers[0].Verdict
	}
	return said
}

func hostPort(t *testing.T, destination string) string {
	t.Helper()
	u, err := url.Parse(destination)
	if err != nil {
		t.Fatal(err)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
