package noproxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/match"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// caseFile is testdata/composer-cases.yaml. Its head comment explains the vocabulary. Unknown keys fail.
type caseFile struct {
	Schema     int            `json:"schema"`
	Invariants []string       `json:"invariants"`
	Cases      []acceptance   `json:"cases"`
	Anchors    map[string]any `json:"anchors"`
}

type acceptance struct {
	ID       string    `json:"id"`
	Title    string    `json:"title"`
	Level    string    `json:"level"`
	Input    caseInput `json:"input"`
	Expect   expect    `json:"expect"`
	Variants []variant `json:"variants"`
}

// variant replaces single fields of the input and adds its own expectations.
type variant struct {
	ID       string          `json:"id"`
	Title    string          `json:"title"`
	Cluster  json.RawMessage `json:"cluster"`
	Secret   json.RawMessage `json:"secret"`
	Options  json.RawMessage `json:"options"`
	Generate json.RawMessage `json:"generate"`
	Input    json.RawMessage `json:"input"`
	Expect   expect          `json:"expect"`
}

type caseInput struct {
	Cluster  caseCluster         `json:"cluster"`
	Secret   caseSecret          `json:"secret"`
	Options  caseOptions         `json:"options"`
	Generate map[string]generate `json:"generate"`
}

type caseCluster struct {
	PodCIDRs      []string `json:"podCIDRs"`
	ServiceCIDRs  []string `json:"serviceCIDRs"`
	ServiceDomain string   `json:"serviceDomain"`
	Endpoint      struct {
		Host string `json:"host"`
		Port int    `json:"port"`
	} `json:"endpoint"`
	Infra string `json:"infra"`
}

type caseSecret struct {
	HTTPProxy  *string `json:"http_proxy"`
	HTTPSProxy *string `json:"https_proxy"`
	NoProxy    *string `json:"no_proxy"`
}

// caseOptions are the fields of noproxy.Input that are neither the Cluster's nor the Secret's. Where a field has a
// likely other spelling, both are known.
type caseOptions struct {
	Profile        string   `json:"profile"`
	DNSAddress     string   `json:"dnsAddress"`
	DNSAddresses   []string `json:"dnsAddresses"`
	DNSServiceIP   string   `json:"dnsServiceIP"`
	ClusterDNS     []string `json:"clusterDNS"`
	Omit           []string `json:"omit"`
	OmitGroups     []string `json:"omitGroups"`
	NoProxyGroups  string   `json:"noProxyGroups"`
	Infrastructure []string `json:"infrastructure"`
	Installation   string   `json:"installation"`
	InstallNoProxy string   `json:"installationNoProxy"`
}

// generate makes a list: entry i is "host-with-a-long-name-<i, 5 digits>.example.net".
type generate struct {
	Count     int    `json:"count"`
	Separator string `json:"separator"`
	Pattern   string `json:"pattern"`
}

type expect struct {
	Rejects    string              `json:"rejects"`
	Equals     *string             `json:"equals"`
	Contains   []string            `json:"contains"`
	Excludes   []string            `json:"excludes"`
	Order      []string            `json:"order"`
	Count      map[string]int      `json:"count"`
	Bypass     map[string][]string `json:"bypass"`
	Proxied    map[string][]string `json:"proxied"`
	Constructs []string            `json:"constructs"`
	Warns      []string            `json:"warns"`
	NoWarn     []string            `json:"nowarn"`
	MaxBytes   int                 `json:"maxBytes"`
	MinTokens  int                 `json:"minTokens"`
	MaxSeconds float64             `json:"maxSeconds"`
	SameAs     string              `json:"sameAs"`
	SameSetAs  string              `json:"sameSetAs"`
}

// TestComposerCases runs the acceptance cases. NOPROXY_CASES names another file of the same vocabulary.
func TestComposerCases(t *testing.T) {
	t.Parallel()
	path := os.Getenv("NOPROXY_CASES")
	if path == "" {
		path = "testdata/composer-cases.yaml"
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file caseFile
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	if file.Schema != 1 || len(file.Cases) == 0 {
		t.Fatalf("schema %d with %d cases, want schema 1 and at least one case", file.Schema, len(file.Cases))
	}
	byID := map[string]caseInput{}
	for _, c := range file.Cases {
		byID[c.ID] = c.Input
	}
	for _, c := range file.Cases {
		t.Run(c.ID+" "+c.Title, func(t *testing.T) {
			t.Parallel()
			if len(c.Variants) == 0 || !c.Expect.empty() {
				check(t, c.Input, c.Expect, byID)
			}
			for i, v := range c.Variants {
				t.Run(fmt.Sprintf("variant %d", i+1), func(t *testing.T) {
					t.Parallel()
					in := v.apply(t, c.Input)
					want := v.Expect
					if want.empty() {
						want = c.Expect
					}
					check(t, in, want, byID)
				})
			}
		})
	}
}

func (e expect) empty() bool {
	text, err := json.Marshal(e)
	none, err2 := json.Marshal(expect{})
	return err == nil && err2 == nil && bytes.Equal(text, none)
}

// apply decodes the fields of the variant over a deep copy of the input.
func (v variant) apply(t *testing.T, in caseInput) caseInput {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out caseInput
	over := func(raw json.RawMessage, into any) {
		if raw == nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	over(text, &out)
	over(v.Cluster, &out.Cluster)
	over(v.Secret, &out.Secret)
	over(v.Options, &out.Options)
	over(v.Generate, &out.Generate)
	over(v.Input, &out)
	return out
}

// compose validates the URLs of the Secret, if it has any, and composes.
func (in caseInput) compose() (noproxy.Result, error) {
	var warnings []finding.Finding
	user := ""
	if in.Secret.NoProxy != nil {
		user = *in.Secret.NoProxy
	}
	for key, g := range in.Generate {
		if key != "no_proxy" {
			return noproxy.Result{}, fmt.Errorf("generating: key %q is not known", key)
		}
		user = g.text()
	}
	var errs []error
	if in.Secret.HTTPProxy != nil || in.Secret.HTTPSProxy != nil {
		data := map[string][]byte{"noProxy": []byte(user)}
		for key, value := range map[string]*string{"httpProxy": in.Secret.HTTPProxy, "httpsProxy": in.Secret.HTTPSProxy} {
			if value != nil {
				data[key] = []byte(*value)
			}
		}
		settings, err := proxyconfig.Parse(data)
		errs = append(errs, err)
		warnings = settings.Warnings
		if err == nil {
			user = settings.NoProxy
		}
	}
	o := in.Options
	omit, err := noproxy.ParseOmittedGroups(o.NoProxyGroups)
	errs = append(errs, err)
	for _, g := range slices.Concat(o.Omit, o.OmitGroups) {
		g = strings.TrimPrefix(g, "-")
		if !slices.Contains(noproxy.Groups(), noproxy.Group(g)) {
			errs = append(errs, fmt.Errorf("group %q is not known", g))
		}
		omit = append(omit, noproxy.Group(g))
	}
	dns := slices.Concat(o.DNSAddresses, o.ClusterDNS)
	for _, a := range []string{o.DNSAddress, o.DNSServiceIP} {
		if a != "" {
			dns = append(dns, a)
		}
	}
	r, err := noproxy.Compose(noproxy.Input{
		PodCIDRs: in.Cluster.PodCIDRs, ServiceCIDRs: in.Cluster.ServiceCIDRs, ServiceDomain: in.Cluster.ServiceDomain,
		EndpointHost: in.Cluster.Endpoint.Host, Infrastructure: told(in.Cluster.Infra, o.Infrastructure...),
		Installation: noproxy.Layer{Place: finding.Key("noProxy").Of("Secret system/proxy"), Text: o.Installation +
			o.InstallNoProxy},
		User:       noproxy.Layer{Place: finding.Key("noProxy").Of("Secret team-a/proxy"), Text: user},
		OmitGroups: omit, Profile: noproxy.Profile(o.Profile), DNSAddresses: dns,
	})
	if joined := joinErrors(append(errs, err)); joined != nil {
		return noproxy.Result{}, joined
	}
	r.Warnings = append(r.Warnings, warnings...)
	return r, nil
}

func joinErrors(errs []error) error {
	var out []error
	for _, err := range errs {
		if err != nil {
			out = append(out, err)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return fmt.Errorf("composing: %w", multi(out))
}

// multi is a list of errors that finding.Of walks.
type multi []error

func (m multi) Error() string   { return fmt.Sprint([]error(m)) }
func (m multi) Unwrap() []error { return m }

func (g generate) text() string {
	pattern := g.Pattern
	if pattern == "" {
		pattern = "host-with-a-long-name-%05d.example.net"
	}
	items := make([]string, g.Count)
	for i := range items {
		items[i] = fmt.Sprintf(pattern, i)
	}
	sep := g.Separator
	if sep == "" {
		sep = ","
	}
	return strings.Join(items, sep)
}

func check(t *testing.T, in caseInput, want expect, byID map[string]caseInput) {
	t.Helper()
	start := time.Now() //nolint:forbidigo // maxSeconds is about wall time
	r, err := in.compose()
	took := time.Since(start)
	if want.Rejects != "" {
		checkRejected(t, in, want.Rejects, err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", clip(r.Value, 2000))
	checkInvariants(t, in, r)
	tokens := strings.Split(r.Value, ",")
	if want.Equals != nil && r.Value != *want.Equals {
		t.Errorf("value is %q, want %q", r.Value, *want.Equals)
	}
	checkTokens(t, r.Value, want)
	checkVerdicts(t, r.Value, want.Bypass, match.Direct)
	checkVerdicts(t, r.Value, want.Proxied, match.Proxied)
	for _, name := range want.Constructs {
		for _, f := range lookup(t, name).Dead(r.Value) {
			if f.Fatal {
				t.Errorf("%s refuses to start because of entry %q", name, f.Token)
			}
		}
	}
	checkWarnings(t, r.Warnings, want)
	if want.MaxBytes > 0 && len(r.Value) > want.MaxBytes {
		t.Errorf("value has %d bytes, want at most %d", len(r.Value), want.MaxBytes)
	}
	if len(tokens) < want.MinTokens {
		t.Errorf("value has %d tokens, want at least %d", len(tokens), want.MinTokens)
	}
	if want.MaxSeconds > 0 && took.Seconds() > want.MaxSeconds {
		t.Errorf("composing took %s, want at most %g s", took, want.MaxSeconds)
	}
	for id, set := range map[string]bool{want.SameAs: false, want.SameSetAs: true} {
		if id == "" {
			continue
		}
		if other, ok := byID[id]; ok {
			checkSame(t, tokens, other, set)
		} else {
			t.Errorf("case %q is not in the file", id)
		}
	}
}

// checkTokens checks which tokens are in a value, in which order and how often.
func checkTokens(t *testing.T, value string, want expect) {
	t.Helper()
	tokens := strings.Split(value, ",")
	for _, s := range want.Contains {
		if !slices.Contains(tokens, s) {
			t.Errorf("token %q is missing in %s", s, clip(value, 2000))
		}
	}
	for _, s := range want.Excludes {
		if slices.Contains(tokens, s) {
			t.Errorf("token %q must not be in %s", s, clip(value, 2000))
		}
	}
	last := -1
	for _, s := range want.Order {
		i := slices.Index(tokens, s)
		if i <= last {
			t.Errorf("token %q is at %d, want behind %d", s, i, last)
		}
		last = i
	}
	for s, n := range want.Count {
		got := 0
		for _, tok := range tokens {
			if strings.EqualFold(tok, s) {
				got++
			}
		}
		if got != n {
			t.Errorf("token %q is there %d times, want %d", s, got, n)
		}
	}
}

func checkWarnings(t *testing.T, warnings []finding.Finding, want expect) {
	t.Helper()
	var codes []string
	for _, w := range warnings {
		codes = append(codes, string(w.Code))
	}
	for _, code := range slices.Concat(want.Warns, want.NoWarn) {
		if !slices.Contains(noproxy.Codes(), finding.Code(code)) {
			t.Errorf("code %q is not known", code)
		}
	}
	for _, code := range want.Warns {
		if !slices.Contains(codes, code) {
			t.Errorf("warning %q is missing, got %q", code, codes)
		}
	}
	for _, code := range want.NoWarn {
		if slices.Contains(codes, code) {
			t.Errorf("warning %q must not be there", code)
		}
	}
}

// checkSame checks that another case has the same tokens, in any order if they are a set.
func checkSame(t *testing.T, tokens []string, other caseInput, set bool) {
	t.Helper()
	o, err := other.compose()
	if err != nil {
		t.Fatal(err)
	}
	a, b := tokens, strings.Split(o.Value, ",")
	if set {
		a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	}
	if !slices.Equal(a, b) {
		t.Errorf("value is %q, that of the other case %q", tokens, o.Value)
	}
}

func checkRejected(t *testing.T, in caseInput, code string, err error) {
	t.Helper()
	if err == nil {
		t.Fatalf("composing succeeded, want %s", code)
	}
	var codes []string
	for _, e := range finding.Of(err) {
		codes = append(codes, string(e.Code))
		if e.Place.String() == "" || e.Message == "" {
			t.Errorf("finding %+v does not say where or why", e)
		}
	}
	switch {
	case len(codes) == 0:
		t.Errorf("error has no finding: %v", err)
	case code == "any":
	case !slices.Contains(noproxy.Codes(), finding.Code(code)):
		t.Errorf("code %q is not known", code)
	case !slices.Contains(codes, code):
		t.Errorf("error has codes %q, want %q: %s", codes, code, clip(err.Error(), 2000))
	}
	for _, s := range []*string{in.Secret.HTTPProxy, in.Secret.HTTPSProxy} {
		if s != nil && len(*s) > 5 && strings.Contains(err.Error(), *s) {
			t.Errorf("error holds a value of the Secret: %v", err)
		}
	}
}

// checkInvariants asserts what the file lists under invariants.
func checkInvariants(t *testing.T, in caseInput, r noproxy.Result) {
	t.Helper()
	seen := map[string]bool{}
	for tok := range strings.SplitSeq(r.Value, ",") {
		if tok == "" && r.Value != "" {
			t.Error("value has an empty token")
		}
		if strings.ContainsFunc(tok,
			func(c rune) bool { return c < 0x21 || c > 0x7e || strings.ContainsRune("'\"\\$`%;", c) }) {
			t.Errorf("token %q has a character it must not have", tok)
		}
		key := strings.ToLower(tok)
		if a, err := netip.ParseAddr(tok); err == nil {
			key = a.Unmap().String()
		}
		if seen[key] {
			t.Errorf("token %q is there twice", tok)
		}
		seen[key] = true
	}
	if n := len("NO_PROXY=") + len(r.Value) + 1; n > 131072 {
		t.Errorf("environment string has %d bytes", n)
	}
	for _, s := range []*string{in.Secret.HTTPProxy, in.Secret.HTTPSProxy} {
		if s != nil && *s != "" && strings.Contains(r.Value, *s) {
			t.Error("value holds a proxy URL")
		}
	}
	again, err := in.compose()
	if err != nil || again.Value != r.Value {
		t.Errorf("composing again gives %q, %v", clip(again.Value, 500), err)
	}
	in.Generate = nil
	in.Secret.NoProxy = &r.Value
	back, err := in.compose()
	if err != nil || back.Value != r.Value {
		t.Errorf("feeding the value back gives %q, %v, want %q", clip(back.Value, 2000), err, clip(r.Value, 2000))
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

func lookup(t *testing.T, name string) match.Client {
	t.Helper()
	c, err := match.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}

// told is what is known about an infrastructure of a kind whose object tells texts.
func told(kind string, texts ...string) noproxy.Infrastructure {
	known := infrastructure.Of(kind).Infrastructure
	for i, text := range texts {
		place := finding.Place{Object: kind + " one", Kind: finding.InObject}.Child("spec", "hosts").Index(i)
		known.Entries = append(known.Entries, noproxy.Fact{Text: text, Place: place})
	}
	return known
}
