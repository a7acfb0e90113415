package match_test

import (
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// acceptance is a case of testdata/composer-cases.yaml, whose head explains the words.
type acceptance struct {
	Title string `json:"title"`
	Input struct {
		PodCIDRs      []string        `json:"podCIDRs"`
		ServiceCIDRs  []string        `json:"serviceCIDRs"`
		ServiceDomain string          `json:"serviceDomain"`
		Endpoint      string          `json:"endpoint"`
		Infra         string          `json:"infra"`
		NoProxy       string          `json:"noProxy"`
		Profile       noproxy.Profile `json:"profile"`
	} `json:"input"`
	Expect struct {
		Equals     string              `json:"equals"`
		Contains   []string            `json:"contains"`
		Excludes   []string            `json:"excludes"`
		Bypass     map[string][]string `json:"bypass"`
		Proxied    map[string][]string `json:"proxied"`
		Constructs []string            `json:"constructs"`
		Warns      []finding.Code      `json:"warns"`
	} `json:"expect"`
}

// TestComposerCases has what clients do with the lists, by the rules that were measured.
func TestComposerCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/composer-cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []acceptance
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Title, func(t *testing.T) {
			t.Parallel()
			in, want := c.Input, c.Expect
			r, err := noproxy.Compose(noproxy.Input{
				PodCIDRs: in.PodCIDRs, ServiceCIDRs: in.ServiceCIDRs, ServiceDomain: in.ServiceDomain, EndpointHost: in.Endpoint,
				Infrastructure: infrastructure.Of(in.Infra).Infrastructure, User: noproxy.Layer{Text: in.NoProxy}, Profile: in.Profile,
			})
			if err != nil {
				t.Fatal(err)
			}
			if want.Equals != "" && r.Value != want.Equals {
				t.Errorf("value is %q, want %q", r.Value, want.Equals)
			}
			tokens := strings.Split(r.Value, ",")
			for _, token := range slices.Concat(want.Contains, want.Excludes) {
				if slices.Contains(tokens, token) != slices.Contains(want.Contains, token) {
					t.Errorf("token %q is wrong in %s", token, r.Value)
				}
			}
			checkVerdicts(t, r.Value, want.Bypass, match.Direct)
			checkVerdicts(t, r.Value, want.Proxied, match.Proxied)
			for _, name := range want.Constructs {
				for _, f := range lookup(t, name).Dead(r.Value) {
					if f.Fatal {
						t.Errorf("%s refuses to start because of entry %q", name, f.Token)
					}
				}
			}
			for _, code := range want.Warns {
				if !slices.ContainsFunc(r.Warnings, func(w finding.Finding) bool { return w.Code == code }) {
					t.Errorf("warning %q is missing, got %v", code, r.Warnings)
				}
			}
		})
	}
}

func checkVerdicts(t *testing.T, value string, urls map[string][]string, want match.Verdict) {
	t.Helper()
	// A public name has a public address.
	public := func(string) (netip.Addr, bool) { return netip.MustParseAddr("198.51.100.10"), true }
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		client := lookup(t, name)
		for _, u := range urls[name] {
			a, err := client.MatchResolved(value, u, public)
			if err != nil {
				t.Errorf("%s %s: %v", name, u, err)
				continue
			}
			if a.Verdict != want {
				t.Errorf("%s %s: %s (%s, entry %q), want %s", name, u, a.Verdict, a.Reason, a.Token, want)
			}
		}
	}
}
