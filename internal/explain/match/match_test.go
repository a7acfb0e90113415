package match_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

func lookup(t *testing.T, spec string) match.Client {
	t.Helper()
	c, err := match.Lookup(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLookup(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"go": "go-httpproxy@x/net-0.62.0 go", "go-httpproxy@x/net-0.34.0": "go-httpproxy@x/net-0.34.0 go-legacy",
		"go-httpproxy@x/net-0.40.0": "go-httpproxy@x/net-0.40.0 go", "go-httpproxy@x/net-0.35.0": "go-httpproxy@x/net-0.35.0 go-legacy",
		"curl": "curl@8.23.0 curl-v6cidr", "curl774": "curl@7.74.0 curl-legacy", "curl788": "curl@7.88.1 curl-v4cidr",
		"curl814": "curl@8.14.1 curl-v4cidr-stop", "curl@8.15": "curl@8.15 curl-v4cidr-stop", "curl@7.88": "curl@7.88 curl-v4cidr", "git": "git@2.39.5+libcurl-7.88.1 curl-v4cidr",
		"wget": "wget@1.25.0 wget", "wget2": "wget2@2.2.0 wget2", "busybox": "busybox-wget@1.37.0 none",
		"requests": "python-requests@2.32.0 requests", "python-requests@2.31.0": "python-requests@2.31.0 requests", "requests@2.34.2": "python-requests@2.34.2 requests-boundary",
		"urllib": "python-urllib@3.13.0 urllib", "httpx": "python-httpx@0.28.1 httpx", "httpx@0.23.3": "python-httpx@0.23.3 httpx-legacy",
		"aiohttp": "python-aiohttp@3.8.4 aiohttp", "ruby": "ruby-nethttp@3.3.0 ruby", "lwp": "perl-lwp@6.68 lwp", "axios": "axios@1.21.1 axios",
		"undici": "undici@8.12.4 undici8", "undici@7": "undici@7 undici6", "undici@7.31.0": "undici@7.31.0 undici7",
		"node-http": "node-http+NODE_USE_ENV_PROXY@24.21.0 node-http", "node-fetch": "node-fetch+NODE_USE_ENV_PROXY@24.21.0 undici7",
		"node-fetch@26.10.0": "node-fetch+NODE_USE_ENV_PROXY@26.10.0 undici8-early", "java": "java@17.0.0 no-environment", "node": "node@20.20.2 no-environment",
	} {
		c := lookup(t, spec)
		if got := c.String() + " " + c.Rules; got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
	for spec, want := range map[string]string{
		"":          "unknown, know axios, busybox-wget, curl,",
		"powersh":   `looking up client "powersh": unknown, know axios,`,
		"curl@7.10": `looking up client "curl": version "7.10" is older than every known one`,
		"curl@new":  "older than every known one",
	} {
		if _, err := match.Lookup(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", spec, err, want)
		}
	}
	for _, c := range match.Clients() {
		if got := lookup(t, c.String()); got.Rules != c.Rules || got.Version != c.Version {
			t.Errorf("%s is found as %s", c, got)
		}
	}
}

func answer(v match.Verdict, entry int, token, reason string) match.Answer {
	return match.Answer{Verdict: v, Entry: entry, Token: token, Reason: reason}
}

func TestMatch_Answers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, client, noProxy, destination string
		want                               match.Answer
	}{
		{"Go names the entry that decides", "go", "a.example, .foo.com", "https://www.foo.com", answer(match.Direct, 1, ".foo.com", "entry matches")},
		{"Go knows loopback without an entry", "go", "", "http://127.9.9.9:80/x", answer(match.Direct, -1, "", "built-in loopback")},
		{"Go proxies what no entry covers", "go", "foo.com", "http://xfoo.com", answer(match.Proxied, -1, "", "no entry matches")},
		{"old Go compares the end of an address, with the port of the entry", "go-httpproxy@x/net-0.34.0", ".2.3:8080", "http://10.1.2.3:8080", answer(match.Direct, 0, ".2.3:8080", "entry matches")},
		{"old Go proxies another port", "go-httpproxy@x/net-0.34.0", ".2.3:81", "http://10.1.2.3:8080", answer(match.Proxied, -1, "", "no entry matches")},
		{"urllib takes a user for a part of the host", "python-urllib", "foo.com", "http://user:pw@foo.com", answer(match.Proxied, -1, "", "no entry matches")},
		{"httpx knows entries for all schemes", "httpx", "all://foo.com", "http://foo.com", answer(match.Direct, 0, "all://foo.com", "entry matches")},
		{"httpx refuses the whole list", "httpx", "foo.com,fd00::/8", "http://foo.com", answer(match.Refuses, 1, "fd00::/8", "the client raises when it is constructed")},
		{"httpx takes port-only entries for all hosts", "httpx", ":8080", "http://foo.com:8080", answer(match.Direct, 0, ":8080", "entry matches")},
		{"httpx refuses hosts it does not parse", "httpx", "", "http://010.1.2.3", answer(match.Refuses, -1, "", "the client does not parse the host")},
		{"curl takes a star only alone", "curl", "*", "http://foo.com", answer(match.Direct, 0, "*", "the whole value is *")},
		{"curl 8 stops at a blank", "curl", "foo.org foo.com", "http://foo.com", answer(match.Proxied, -1, "", "no entry matches")},
		{"Ruby goes direct to a name of a loopback address whatever the list has", "ruby", "127.0.0.1,127.0.0.0/8,localhost", "http://foo.com", answer(match.Proxied, -1, "", "no entry matches")},
		{"Ruby needs the address of a name for an entry that is not of loopback", "ruby", "127.0.0.1,10.0.0.0/8,127.0.0.2", "http://foo.com", answer(match.DependsOnDNS, 1, "10.0.0.0/8", "the address of the host may match")},
		{"Ruby needs the address of a name for a network with more than loopback", "ruby", "126.0.0.0/7", "http://foo.com", answer(match.DependsOnDNS, 0, "126.0.0.0/7", "the address of the host may match")},
		{"Ruby needs the address of a name", "ruby", "10.0.0.0/8,foo.org", "http://foo.com", answer(match.DependsOnDNS, 0, "10.0.0.0/8", "the address of the host may match")},
		{"Ruby does not need it if a later entry covers the name", "ruby", "10.0.0.0/8,foo.com", "http://foo.com", answer(match.Direct, 1, "foo.com", "entry matches")},
		{"Ruby goes direct to loopback", "ruby", "", "http://localhost", answer(match.Direct, -1, "", "resolves to loopback")},
		{"Ruby does not parse letters outside ASCII", "ruby", "", "http://bücher.example", answer(match.Refuses, -1, "", "URI does not parse the name")},
		{"an empty entry takes everything off the proxy in LWP", "lwp", "a,,b", "http://foo.com", answer(match.Direct, 1, "", "entry matches")},
		{"busybox does not look", "busybox", "*", "http://foo.com", answer(match.Proxied, -1, "", "the client does not read NO_PROXY")},
		{"Java never uses the variables", "java", "", "http://foo.com", answer(match.Direct, -1, "", "the client does not read the environment")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := lookup(t, tc.client).Match(tc.noProxy, tc.destination)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMatchResolved_ComparesTheAddress(t *testing.T) {
	t.Parallel()
	inside := func(string) (netip.Addr, bool) { return netip.MustParseAddr("10.1.2.3"), true }
	nowhere := func(string) (netip.Addr, bool) { return netip.Addr{}, false }
	ruby := lookup(t, "ruby")
	for _, tc := range []struct {
		list    string
		resolve match.Resolver
		want    match.Verdict
	}{
		{"10.0.0.0/8", inside, match.Direct},
		{"10.0.0.0/255.0.0.0", inside, match.Direct},
		{"10.1.2.3:80", inside, match.Direct},
		{"10.1.2.3:81", inside, match.Proxied},
		{"10.0.0.0/255.0.255.0", inside, match.Proxied},
		{"10.0.0.0/33,x", inside, match.Proxied},
		{"10.0.0.0/8", nowhere, match.Proxied},
	} {
		a, err := ruby.MatchResolved(tc.list, "http://foo.com", tc.resolve)
		if err != nil || a.Verdict != tc.want {
			t.Errorf("%s: got %+v, %v, want %s", tc.list, a, err, tc.want)
		}
	}
}

func TestMatch_RejectsDestinations(t *testing.T) {
	t.Parallel()
	for name, destination := range map[string]string{
		"no scheme": "foo.com", "another scheme": "ftp://foo.com", "no host": "http://", "only userinfo": "http://hunter2@/", "only a port": "http://:80",
		"an open bracket": "http://[::1", "a name in brackets": "http://[foo]/", "text behind the bracket": "http://[::1]x/", "a port that is a word": "http://foo:bar/",
		"a port beyond 16 bits": "http://foo:65536/", "a blank": "http://foo bar/", "a NUL": "http://foo\x00/", "a host that is not UTF-8": "http://\xff/",
	} {
		for _, c := range match.Clients() {
			_, err := c.Match("*", destination)
			if err == nil || !strings.HasPrefix(err.Error(), "parsing destination: ") ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s, %s: got %v", c, name, err)
			}
		}
	}
}

func TestDead(t *testing.T) {
	t.Parallel()
	const list = "foo.com,.foo.com,*.foo.com,foo.com:8080,10.0.0.0/8,fd00::/8,fd00::1,[fd00::1],[fd00::1]:443,10.1.2.1-10.1.2.9,10.*,*"
	for client, want := range map[string]string{
		"go":        "[fd00::1] 10.1.2.1-10.1.2.9 10.*",
		"curl":      "*.foo.com foo.com:8080 [fd00::1] [fd00::1]:443 10.1.2.1-10.1.2.9 10.* *",
		"curl788":   "*.foo.com foo.com:8080 fd00::/8 [fd00::1] [fd00::1]:443 10.1.2.1-10.1.2.9 10.* *",
		"curl774":   "*.foo.com foo.com:8080 10.0.0.0/8 fd00::/8 [fd00::1] [fd00::1]:443 10.1.2.1-10.1.2.9 10.* *",
		"wget":      "*.foo.com foo.com:8080 10.0.0.0/8 fd00::/8 [fd00::1] [fd00::1]:443 10.1.2.1-10.1.2.9 10.* *",
		"aiohttp":   "*.foo.com foo.com:8080 10.0.0.0/8 fd00::/8 [fd00::1] [fd00::1]:443 10.1.2.1-10.1.2.9 10.* *",
		"node-http": "10.0.0.0/8 fd00::/8 [fd00::1] [fd00::1]:443 10.*",
		"axios":     "10.1.2.1-10.1.2.9 10.*",
		"httpx":     "*.foo.com !fd00::/8 ![fd00::1] ![fd00::1]:443 10.1.2.1-10.1.2.9 10.*",
		"busybox":   list,
		"java":      "",
	} {
		var got []string
		for _, f := range lookup(t, client).Dead(list) {
			mark := ""
			if f.Fatal {
				mark = "!"
			}
			if f.Reason == "" {
				t.Errorf("%s: %q has no reason", client, f.Token)
			}
			got = append(got, mark+f.Token)
		}
		if diff := cmp.Diff(strings.Fields(strings.ReplaceAll(want, ",", " ")), got,
			cmp.Transformer("join", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", client, diff)
		}
	}
	want := []match.DeadEntry{
		{Entry: 2, Token: "c", Reason: "not read: the list ends at the first space inside an entry"},
		{Entry: 3, Token: "d", Reason: "not read: the list ends at the first space inside an entry"},
	}
	if diff := cmp.Diff(want, lookup(t, "curl").Dead("a, b c,d")); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("foo.com,.svc,10.0.0.0/8", "http://www.foo.com:8080/")
	f.Add("[fd00::1]:80,fd00::/8, x\ty;z,*:80", "https://[fd00:0:0::1]:6443/")
	f.Add("*.bücher.example,://,http://,@,:,::,[,]", "http://user:pw@BÜCHER.example./")
	f.Add(",,a,,1.2.3-,10.-10.*,0x0a.1,<local>", "http://0x7f.1/")
	f.Add("10.0.0.0/999999999999,10.0.0.0/-1,/8,..,*.", "http://[::ffff:10.1.2.3]")
	clients := match.Clients()
	f.Fuzz(func(t *testing.T, noProxy, destination string) {
		if len(noProxy) > 200 || len(destination) > 200 {
			return
		}
		for _, c := range clients {
			a, err := c.Match(noProxy, destination)
			if err != nil {
				continue
			}
			switch a.Verdict {
			case match.Direct, match.Proxied, match.Refuses, match.DependsOnDNS:
			default:
				t.Fatalf("%s: verdict %q", c, a.Verdict)
			}
			if a.Reason == "" || a.Entry < -1 || a.Entry < 0 && a.Token != "" || a.Verdict == match.DependsOnDNS && a.Entry < 0 {
				t.Fatalf("%s: %+v", c, a)
			}
			if again, _ := c.Match(noProxy, destination); again != a {
				t.Fatalf("%s: %+v, then %+v", c, a, again)
			}
		}
	})
}
