package noproxy_test

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// FuzzCompose proves on arbitrary input that a composed value keeps the invariants, passes unchanged when it is fed
// back.
func FuzzCompose(f *testing.F) {
	f.Add("10.244.0.0/16", "10.96.0.0/12", "cluster.local", "cp.example.org", "a.example,.b.example 192.0.2.7:80", false)
	f.Add("fd00:10:244::/56", "fd00:10:96::/112", "Corp.Example.", "[2001:db8::10]:6443",
		"*.x.example,[fd00::1]:443,10.0.0.1-10.0.0.9", true)
	f.Add("", "10.96.0.0/30", "", "", "- bücher.example.\n- *\n", false)
	f.Add("::ffff:10.0.0.0/104", "0.0.0.0/0", "svc", "10.1", "$(id),`x`,%41,http://u:p@h/,\x00,\ufeff", true)
	f.Add("10.0.0.0/33", "x", "..", ":", strings.Repeat("a.example,", 50), false)
	f.Fuzz(func(t *testing.T, pods, services, domain, endpoint, user string, shell bool) {
		in := noproxy.Input{ServiceDomain: domain, EndpointHost: endpoint, User: noproxy.Layer{Text: user}}
		if pods != "" {
			in.PodCIDRs = strings.Split(pods, ",")
		}
		if services != "" {
			in.ServiceCIDRs = strings.Split(services, ",")
		}
		if shell {
			in.Profile = noproxy.ProfileShell
		}
		r, err := noproxy.Compose(in)
		if err != nil {
			for _, e := range finding.Of(err) {
				if e.Code == "" || e.Place.String() == "" || e.Message == "" {
					t.Fatalf("incomplete finding %+v", e)
				}
			}
			return
		}
		seen := map[string]bool{}
		for tok := range strings.SplitSeq(r.Value, ",") {
			if tok == "" || strings.Trim(tok, "abcdefghijklmnopqrstuvwxyz0123456789-_.:/[]*") != "" || seen[tok] {
				t.Fatalf("token %q in %q", tok, r.Value)
			}
			seen[tok] = true
		}
		if len("NO_PROXY=")+len(r.Value)+1 > 131072 {
			t.Fatalf("%d bytes", len(r.Value))
		}
		in.User.Text = r.Value
		back, err := noproxy.Compose(in)
		if err != nil || back.Value != r.Value {
			t.Fatalf("fed back %q gives %q, %v", r.Value, back.Value, err)
		}
		cfg := httpproxy.Config{HTTPProxy: "http://proxy.invalid", NoProxy: r.Value}
		if p, err := cfg.ProxyFunc()(&url.URL{Scheme: "http", Host: "kubernetes.default"}); err != nil || p != nil {
			t.Fatalf("kubernetes.default is proxied: %v, %v", p, err)
		}
	})
}
