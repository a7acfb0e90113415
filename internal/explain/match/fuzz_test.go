package match_test

import (
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// FuzzCompose proves on arbitrary input that a composed value does not stop httpx in the shell profile, and holds nothing
// that Go cannot match, apart from what was reported.
func FuzzCompose(f *testing.F) {
	f.Add("10.244.0.0/16", "cp.example.org", "a.example,.b.example 192.0.2.7:80", false)
	f.Add("fd00:10:244::/56", "[2001:db8::10]:6443", "*.x.example,[fd00::1]:443,10.0.0.1-10.0.0.9", true)
	f.Add("::ffff:10.0.0.0/104", "10.1", "$(id),`x`,%41,http://u:p@h/,\x00,\ufeff", true)
	f.Fuzz(func(t *testing.T, pods, endpoint, user string, shell bool) {
		in := noproxy.Input{EndpointHost: endpoint, PodCIDRs: strings.Split(pods, ","), User: noproxy.Layer{Text: user}}
		if shell {
			in.Profile = noproxy.ProfileShell
		}
		r, err := noproxy.Compose(in)
		if err != nil {
			return
		}
		reported := false
		for _, w := range r.Warnings {
			reported = reported || w.Code == noproxy.CodePartialIP
		}
		goClient, httpx := lookup(t, "go"), lookup(t, "httpx")
		if !reported && len(r.Value) < 512 {
			for _, d := range goClient.Dead(r.Value) {
				if !digitsOnly(d.Token) {
					t.Fatalf("token %q of %q is dead in Go", d.Token, r.Value)
				}
			}
		}
		if a, err := httpx.Match(r.Value, "http://example.org"); shell && (err != nil || a.Verdict == match.Refuses) {
			t.Fatalf("httpx: %+v, %v, value %q", a, err, r.Value)
		}
	})
}

// digitsOnly reports a name whose last label is a number, such as an endpoint "10.1". No such name exists.
func digitsOnly(s string) bool {
	s = strings.TrimRight(strings.Split(s, ":")[0], ".")
	return strings.Trim(s[strings.LastIndexByte(s, '.')+1:], "0123456789") == ""
}
