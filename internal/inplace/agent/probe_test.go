package agent_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
)

// A probe says of a node what is wrong with it, and no more of a proxy than it has to.
func TestProbe_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	server, ca := newTLSServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	for name, test := range map[string]struct {
		userinfo, noProxy, apiServer string
		away, untrusted              bool
		without                      bool
		problems                     string
		want                         map[string]string // what is wrong, by check
	}{
		"all is well": {},
		"a wrong password": {userinfo: "user:wr0ng", want: map[string]string{
			"node-endpoint": "https://registry.example.com, through the proxy: Proxy Authentication Required",
		}},
		"a proxy that is away": {away: true, want: map[string]string{
			"node-endpoint": "connection refused",
		}},
		"certificates that the node does not trust": {untrusted: true, want: map[string]string{
			"node-trust":    "certificate 1 of /etc/capi-proxy-patcher/trusted-ca.pem (O=Acme Co) is in no bundle",
			"node-endpoint": "certificate signed by unknown authority O=Acme Co",
		}},
		"a NO_PROXY without the node network": {noProxy: "127.0.0.1,.svc", want: map[string]string{
			"node-network": "clients would ask the proxy for nodes: 10.1.2.3",
		}},
		"a NO_PROXY without the endpoint": {apiServer: "https://api.example.com:6443", want: map[string]string{
			"node-api-server": "https://api.example.com:6443 would be asked for through the proxy",
		}},
		"a node that has booted without the proxy": {without: true, want: map[string]string{
			"node-variables": "the node has no /etc/capi-proxy-patcher/proxy.env", "node-endpoint": "directly",
		}},
		"a node that could not be prepared": {
			problems: "capi-proxy-patcher: certificates are not trusted: \x1b[31m\ncapi-proxy-patcher: containerd did not restart\n" + strings.Repeat("x", 1<<20),
			want:     map[string]string{"node-problems": `certificates are not trusted: [31m; containerd did not restart; xxx`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, server, http.StatusOK)
			f := newFolders(t)
			if test.problems != "" {
				f.put(contract.PathProblems, test.problems, 0o644)
			}
			if test.away {
				p.Close()
			}
			if test.without {
				must(t, os.Remove(f.path(contract.PathProxyEnv)))
			} else {
				f.put(contract.PathProxyEnv, proxyEnv(t, p.url(cmp.Or(test.userinfo, "user:p%40%22%24s")),
					cmp.Or(test.noProxy, "10.0.0.0/8,127.0.0.1,.svc")), 0o600)
			}
			f.put(contract.PathTrustedCA, ca, 0o644)
			if !test.untrusted {
				f.put(bundle, ca, 0o644)
			}
			f.put("/etc/kubernetes/pki/ca.crt", ca, 0o644)
			answers, err := agent.Probe(t.Context(), agent.ProbeOptions{
				Root: f.Root, Endpoints: []string{"https://registry.example.com/v2/?t0ken"}, APIServer: cmp.Or(test.apiServer, server.URL),
				Nodes: []string{"10.1.2.3", "no address"},
			})
			must(t, err)
			var checks []string
			for _, answer := range answers {
				checks = append(checks, string(answer.Check))
				want, bad := test.want[string(answer.Check)]
				if answer.OK == bad || !strings.Contains(answer.Message, want) {
					t.Errorf("%s: %t, %s; want %s", answer.Check, answer.OK, answer.Message, want)
				}
			}
			want := []string{"node-problems", "node-variables", "node-trust", "node-endpoint", "node-api-server", "node-network"}
			if !slices.Equal(checks, want) {
				t.Errorf("answers are %v", checks)
			}
			text, err := json.Marshal(answers)
			for _, hidden := range []string{"p%40", password, "wr0ng", "t0ken"} {
				if err != nil || strings.Contains(string(text), hidden) {
					t.Errorf("%q is in %s, %v", hidden, text, err)
				}
			}
		})
	}
}

// Only what is given is asked for. A DNS server that does not answer is no reason to stop.
func TestProbe_AsksForWhatIsGiven(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	f.put(contract.PathProxyEnv, proxyEnv(t, "http://127.0.0.1:1", ".svc"), 0o600)
	for given, want := range map[string]struct {
		options agent.ProbeOptions
		checks  []string
	}{
		"nothing":        {agent.ProbeOptions{}, nil},
		"the API server": {agent.ProbeOptions{APIServer: "https://x.svc:1"}, []string{"node-api-server"}},
		"a name":         {agent.ProbeOptions{DNSName: "x.svc"}, nil},
		"a DNS server":   {agent.ProbeOptions{DNSServer: "127.0.0.1"}, nil},
		"both":           {agent.ProbeOptions{DNSName: "x.svc", DNSServer: "127.0.0.1"}, []string{"node-dns"}},
	} {
		want.options.Root = f.Root
		answers, err := agent.Probe(t.Context(), want.options)
		var failed []string
		for _, answer := range answers {
			if answer.Check == "node-api-server" || answer.Check == "node-dns" {
				failed = append(failed, string(answer.Check))
				if answer.OK || !strings.Contains(answer.Message, "https://x.svc") {
					t.Errorf("%s: %+v", given, answer)
				}
			}
		}
		if err != nil || !slices.Equal(failed, want.checks) {
			t.Errorf("%s: checks are %q, %v; want %q", given, failed, err, want.checks)
		}
	}
}

// Whatever certificates and hosts are called, all answers fit into the message of a container.
func TestProbe_IsBounded(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	f.put(contract.PathProxyEnv, proxyEnv(t, "http://127.0.0.1:1"), 0o600)
	long := "https://" + strings.Repeat("a.", 4000) + "example.com/"
	answers, err := agent.Probe(t.Context(), agent.ProbeOptions{
		Root: f.Root, Endpoints: append([]string{long + "\x1b[31m"}, slices.Repeat([]string{long}, 100)...), APIServer: long, DNSName: long,
		Nodes: slices.Repeat([]string{"2001:db8:1111:2222:3333:4444:5555:6666"}, 100),
	})
	must(t, err)
	for _, answer := range answers { // JSON would hide it
		if strings.ContainsFunc(answer.Message, unicode.IsControl) {
			t.Errorf("%q", answer.Message)
		}
	}
	text, err := json.Marshal(answers)
	if err != nil || len(text) > 4096 || !strings.Contains(string(text), "a.a.a.") {
		t.Errorf("%d bytes, %v: %q", len(text), err, text)
	}
}
