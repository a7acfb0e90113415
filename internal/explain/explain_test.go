package explain_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

func clients(tb testing.TB, specs ...string) []match.Client {
	tb.Helper()
	out := make([]match.Client, len(specs))
	for i, spec := range specs {
		c, err := match.Lookup(spec)
		if err != nil {
			tb.Fatal(err)
		}
		out[i] = c
	}
	return out
}

func destinations(t *testing.T, texts ...string) []explain.Destination {
	t.Helper()
	out, err := cluster(t, noproxy.Input{}, 0).Choose(texts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func report(tb testing.TB, in explain.Input) explain.Report {
	tb.Helper()
	r, err := explain.Explain(in)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestExplain_NamesTheDecidingEntryAndItsOrigin(t *testing.T) {
	t.Parallel()
	entries := []noproxy.Entry{
		{Value: "10.0.0.0/8", Group: noproxy.GroupPods, Place: finding.Field("pods")},
		{Value: ".Example.com", Group: noproxy.GroupUser, Place: finding.Field("Secret team-a/p, key noProxy entry 1")},
		{Value: "fd00:10:96::1", Group: noproxy.GroupServiceAddresses, Place: finding.Field("service")},
	}
	values := make([]string, len(entries))
	for i, e := range entries {
		values[i] = e.Value
	}
	for name, test := range map[string]struct {
		client, destination string
		want                explain.Answer
	}{
		"a network":             {"go", "10.1.2.3", explain.Answer{Verdict: match.Direct, Entry: "10.0.0.0/8", Origin: "pods", Reason: "entry matches"}},
		"a name":                {"curl", "a.example.com", explain.Answer{Verdict: match.Direct, Entry: ".Example.com", Origin: "Secret team-a/p, key noProxy entry 1", Reason: "entry matches"}},
		"a part of an entry":    {"ruby", "8.8.8.1", explain.Answer{Verdict: match.Direct, Entry: "1", Origin: "a part of fd00:10:96::1, service", Reason: "entry matches"}},
		"nothing":               {"wget", "10.1.2.3", explain.Answer{Verdict: match.Proxied, Reason: "no entry matches"}},
		"what is built in":      {"go", "127.0.0.1", explain.Answer{Verdict: match.Direct, Reason: "built-in loopback"}},
		"a client without list": {"busybox", "127.0.0.1", explain.Answer{Verdict: match.Proxied, Reason: "the client does not read NO_PROXY"}},
		"a name that resolves":  {"ruby", "a.example.org", explain.Answer{Verdict: match.DependsOnDNS, Entry: "10.0.0.0/8", Origin: "pods", Reason: "the address of the host may match"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := report(t, explain.Input{
				NoProxy: strings.Join(values, ","), Entries: entries,
				Clients: clients(t, test.client), Destinations: destinations(t, test.destination),
			})
			got := r.Destinations[0].Answers[0]
			test.want.Client = got.Client
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestExplain_AgreesWithTheClients compares every answer of the report with the model that it comes from.
func TestExplain_AgreesWithTheClients(t *testing.T) {
	t.Parallel()
	const value = "localhost,10.0.0.0/8,*.a.example,.b.example,c.example:8443,[fd00::1],fd00::2,fd00:1::/64,bücher.example,1.2.3"
	given := destinations(t, "localhost", "10.1.2.3", "x.a.example", "b.example", "c.example:8443", "fd00::1", "fd00::2",
		"fd00:1::9", "bücher.example", "10.1.2.3:80", "other.example")
	all := match.Clients()
	r := report(t, explain.Input{NoProxy: value, Clients: all, Destinations: given})
	n := 0
	for i, row := range r.Destinations {
		for j, a := range row.Answers {
			want, err := all[j].Match(value, given[i].URL)
			if err != nil || want.Verdict != a.Verdict || a.Client != all[j].String() || (want.Token == "") != (a.Entry == "") {
				t.Errorf("%s, %s: got %+v, want %+v, error %v", all[j], given[i].URL, a, want, err)
			}
			n++
		}
	}
	if n != len(all)*len(given) || n < 400 {
		t.Errorf("%d answers", n)
	}
}

func TestExplain_SaysWhatToWriteInsteadOfAnEntry(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		clients, value, entry string
		dead, fatal           int
		fix                   string
	}{
		"an inner star":                     {"go,curl,wget", "a.example,10.*", "10.*", 3, 0, "write .name for all names below name, or a network for addresses"},
		"brackets":                          {"go,httpx", "[fd00::1]", "[fd00::1]", 1, 1, "write fd00::1"},
		"an IPv6 network":                   {"go,httpx", "fd00::/8", "fd00::/8", 0, 1, "use profile shell for values that Python programs read"},
		"a network with a port":             {"go", "10.0.0.0/8:8080", "10.0.0.0/8:8080", 1, 0, "write address/length, without a port"},
		"a port, for clients without":       {"curl,wget", "a.example:8080", "a.example:8080", 2, 0, "leave the port out"},
		"a network, for clients without":    {"wget,urllib", "10.0.0.0/8", "10.0.0.0/8", 2, 0, "these clients read no networks; write single addresses or name suffixes for them"},
		"a network that one client reads":   {"go,wget", "10.0.0.0/8", "10.0.0.0/8", 1, 0, ""},
		"a client without list is no voice": {"busybox,java", "a.example", "a.example", 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := report(t, explain.Input{
				NoProxy: test.value, Clients: clients(t, strings.Split(test.clients, ",")...),
				Destinations: destinations(t, "a.example"),
			})
			for _, e := range r.Entries {
				if e.Value != test.entry {
					if e.Fix != "" {
						t.Errorf("%+v has a fix", e)
					}
					continue
				}
				if len(e.DeadIn) != test.dead || len(e.FatalIn) != test.fatal || e.Fix != test.fix {
					t.Errorf("got %+v", e)
				}
			}
			if text := r.Text(); strings.Contains(text, "Entries that need a change") != (test.fix != "") ||
				!strings.Contains(text, test.fix) {
				t.Errorf("text:\n%s", text)
			}
		})
	}
}

// TestText_CountsByDNSApart has a client that resolves one of two destinations in the Cluster.
func TestText_CountsByDNSApart(t *testing.T) {
	t.Parallel()
	given := destinations(t, "10.1.2.3", "a.example.org")
	for i := range given {
		given[i].InCluster = true
	}
	r := report(t, explain.Input{NoProxy: "10.0.0.0/8", Clients: clients(t, "ruby"), Destinations: given})
	if got, _, _ := strings.Cut(r.Text(), "\n"); got != "1 of 2 in-cluster destinations are direct; 1 by DNS" {
		t.Errorf("it begins with %q", got)
	}
}

func TestFailures_AreInClusterDestinationsThatAreNotDirect(t *testing.T) {
	t.Parallel()
	r := report(t, explain.Input{
		NoProxy: "10.96.0.0/12,fd00::/8", Clients: clients(t, "curl"), FailOn: clients(t, "go", "httpx", "wget", "curl"),
		Destinations: destinations(t, "10.96.0.1", "registry.example.com", "127.0.0.1"),
	})
	want := []explain.Failure{
		{Destination: "10.96.0.1", Client: "python-httpx@0.28.1", Verdict: match.Refuses},
		{Destination: "10.96.0.1", Client: "wget@1.25.0", Verdict: match.Proxied},
		{Destination: "127.0.0.1", Client: "curl@8.23.0", Verdict: match.Proxied},
		{Destination: "127.0.0.1", Client: "python-httpx@0.28.1", Verdict: match.Refuses},
		{Destination: "127.0.0.1", Client: "wget@1.25.0", Verdict: match.Proxied},
	}
	if diff := cmp.Diff(want, r.Failures); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(r.Clients) != 4 {
		t.Errorf("columns %+v", r.Clients)
	}
}

func TestOutput_ShowsNoUserinfoAndControlsNoTerminal(t *testing.T) {
	t.Parallel()
	const value = "http://user:s3cr@s3cr@proxy.example,http://bob:s3cr,et@q.example,eve:s3cr,et@q.example,\x1b[31mred,u:s3cret@h.example:80,a\tb\r,'$(id)`\\"
	r := report(t,
		explain.Input{
			NoProxy: value, Clients: match.Clients(),
			Destinations: destinations(t, "https://u:s3cret@proxy.example/?t=s3cret", "h.example:80"),
		})
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(data), r.Text()} {
		if strings.Contains(text, "s3cr") || strings.Contains(text, "et@q") {
			t.Errorf("a credential in\n%s", text)
		}
		if strings.ContainsAny(text, "\x1b\r\t\x00") {
			t.Errorf("a control character in\n%q", text)
		}
		if !strings.Contains(text, "xxxxx@proxy.example") {
			t.Errorf("the entry is not shown:\n%s", text)
		}
	}
}

// TestText_HasEveryAnswerOnce composes lists for all kinds of Clusters. Each client stands once below each destination:
// by name, among all, among all others, or below every destination.
func TestText_HasEveryAnswerOnce(t *testing.T) {
	t.Parallel()
	specs := []string{
		"go", "curl@7.88.1", "curl@8.14.1", "wget", "busybox", "urllib", "requests", "httpx", "ruby",
		"node-fetch", "node-http",
	}
	for name, in := range map[string]noproxy.Input{
		"IPv4":       {PodCIDRs: []string{"10.244.0.0/16"}, EndpointHost: "192.0.2.1"},
		"dual-stack": network(),
		"names":      {EndpointHost: "an-endpoint-with-a-very-long-name.of.a.very.long.domain.example.com", Infrastructure: infrastructure.Of("AWSCluster").Infrastructure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, in, 0)
			in.OmitGroups, in.User, in.Profile = nil,
				noproxy.Layer{
					Place: finding.Key("noProxy").Of("Secret a-namespace-with-a-long-name/http-proxy"),
					Text:  ".corp.example.com, 203.0.113.0/24 db.example.com:5432",
				}, noproxy.ProfileService
			composed, err := noproxy.Compose(in)
			if err != nil {
				t.Fatal(err)
			}
			r := report(t, explain.Input{
				NoProxy: composed.Value, Entries: composed.Entries, Warnings: composed.Warnings,
				Clients: clients(t, specs...), Destinations: c.Destinations(),
			})
			text := r.Text()
			if regexp.MustCompile(`(?m) $`).MatchString(text) {
				t.Errorf("blanks at the end of a line:\n%s", text)
			}
			said := map[string][]string{} // the clients of each block, by its first line
			block := ""
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "  ") {
					block, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), ", ")
					continue
				}
				if names, _, ok := strings.Cut(line[12:], ": "); ok {
					said[block] = append(said[block], strings.Split(names, ", ")...)
				}
			}
			always := said["every destination"]
			for _, d := range r.Destinations {
				got := said[d.Name]
				together := []string{"all"}
				if len(always) > 0 {
					together = []string{"all others"}
				}
				if !slices.Equal(got, together) && len(got)+len(always) != len(specs) {
					t.Errorf("%s: %q, and %q of all:\n%s", d.Name, got, always, text)
				}
			}
		})
	}
}

func TestText_CutsALongValue(t *testing.T) {
	t.Parallel()
	hosts := make([]string, 4000)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("host%d.example.com", i)
	}
	r := report(t, explain.Input{
		NoProxy: strings.Join(hosts, ","), Clients: clients(t, "go"),
		Destinations: destinations(t, "host3999.example.com"),
	})
	text := r.Text()
	if n := strings.Count(text, "\n"); n > 20 || !strings.Contains(text, "... 4000 entries in all; -o json has them") {
		t.Errorf("%d lines:\n%.2000s", n, text)
	}
	if !strings.Contains(text, "host3999.example.com (entry 4000)") || r.NoProxy != strings.Join(hosts, ",") ||
		len(r.Entries) != 4000 {
		t.Error("the report itself is cut")
	}
}

// FuzzExplain proves that no list makes it fail, that text holds no control characters but line ends, and that the
// outcome is the same each time.
func FuzzExplain(f *testing.F) {
	for _, seed := range []string{
		"", "*", "a.example,10.0.0.0/8", "http://u:p@h,\x1b[0m", "[fd00::1]:80,fd00::/8",
		",,, ;|", "xn--a,\xff", "a\nb\x00c", "@,@@",
	} {
		f.Add(seed)
	}
	all := match.Clients()
	f.Fuzz(func(t *testing.T, value string) {
		if len(value) > 2000 {
			return
		}
		in := explain.Input{NoProxy: value, Clients: all, Destinations: destinations(t, "a.example", "10.1.2.3", "fd00::1")}
		text := report(t, in).Text()
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r == 0x7f) }) {
			t.Errorf("%q gives %q", value, text)
		}
		if text != report(t, in).Text() {
			t.Errorf("%q gives two texts", value)
		}
	})
}
