package noproxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// generated is what the plain Cluster of these tests brings.
const generated = "localhost,127.0.0.1,10.244.0.0/16,10.96.0.0/12,10.96.0.1,10.96.0.10,kubernetes,kubernetes.default," +
	".svc,.cluster.local,.cluster.local.,cp.example.org"

func plain(user string) noproxy.Input {
	return noproxy.Input{
		PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}, ServiceDomain: "cluster.local",
		EndpointHost: "cp.example.org",
		User:         noproxy.Layer{Place: finding.Key("noProxy").Of("Secret team-a/proxy"), Text: user},
	}
}

// compose returns what is made of an input. With its value as the user's list, that is the same.
func compose(t *testing.T, in noproxy.Input) noproxy.Result {
	t.Helper()
	r, err := noproxy.Compose(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.Warnings {
		if !slices.Contains(noproxy.Codes(), w.Code) {
			t.Errorf("code %q is not known", w.Code)
		}
	}
	in.User.Text = r.Value
	if back, err := noproxy.Compose(in); err != nil || back.Value != r.Value {
		t.Errorf("fed back, %q gives %q, %v", r.Value, back.Value, err)
	}
	return r
}

func codes(ws []finding.Finding) string {
	out := make([]string, len(ws))
	for i, w := range ws {
		out[i] = string(w.Code)
	}
	return strings.Join(out, "/")
}

func TestCompose_UserEntries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, user, want, warns string }{
		{"an empty list adds nothing", "", "", ""},
		{"a list of separators adds nothing", " ,,\t,\r\n , ", "", ""},
		{"commas, blanks, tabs and line ends separate", "a.example b.example\tc.example\r\nd.example,e.example\n", "a.example,.a.example,b.example,.b.example,c.example,.c.example,d.example,.d.example,e.example,.e.example", ""},
		{"the lines of a YAML list are read", "- a.example\n  - .b.example\n", "a.example,.a.example,.b.example", ""},
		{"names are lower case", "Registry.Example.NET", "registry.example.net,.registry.example.net", ""},
		{"a dotted name stays as it is", ".example.net", ".example.net", ""},
		{"star-dot becomes a dot", "*.example.net", ".example.net", "star-dot-rewritten"},
		{"a trailing dot gives both forms", "example.net.", "example.net,.example.net,example.net.", "trailing-dot"},
		{"a dotted name with a trailing dot gives both forms", ".example.net.", ".example.net,.example.net.", "trailing-dot"},
		{"an address with a trailing dot loses it", "192.0.2.7.", "192.0.2.7", "trailing-dot"},
		{"a single label gets no further form", "registry", "registry", "single-label"},
		{"a top-level domain is too broad", "com", "com", "single-label/over-broad"},
		{"a dotted country code is too broad", ".de", ".de", "over-broad"},
		{"a public second level is too broad", ".co.uk", ".co.uk", "over-broad"},
		{"a private top-level domain is fine with a dot", ".corp", ".corp", ""},
		{"underscores are let through", "my_host.example.net", "my_host.example.net,.my_host.example.net", ""},
		{"an international name becomes ASCII", "bücher.example", "xn--bcher-kva.example,.xn--bcher-kva.example", "idn-converted"},
		{"the ideographic full stop separates labels", ".bücher。example", ".xn--bcher-kva.example", "idn-converted"},
		{"an address stays", "192.0.2.7", "192.0.2.7", ""},
		{"a mapped address becomes IPv4", "::ffff:192.0.2.7", "192.0.2.7", ""},
		{"an IPv6 address is compressed", "2001:DB8:0:0:0:0:0:7", "2001:db8::7", "ipv6-bare"},
		{"brackets without a port go", "[2001:db8::7]", "2001:db8::7", "ipv6-bare"},
		{"what looks like a port behind bare IPv6 is part of the address", "2001:db8::7:443", "2001:db8::7:443", "ipv6-bare"},
		{"ports stay", "r.example.net:5000,192.0.2.7:8080,[2001:db8:0::7]:443", "r.example.net:5000,192.0.2.7:8080,[2001:db8::7]:443", "port-entry/port-entry/port-entry"},
		{"a port loses leading zeros", "r.example.net:0080", "r.example.net:80", "port-entry"},
		{"star-dot with a port", "*.example.net:8443", ".example.net:8443", "star-dot-rewritten/port-entry"},
		{"a network is masked", "192.0.2.77/24", "192.0.2.0/24", "cidr-host-bits"},
		{"an IPv6 network is masked", "2001:db8::77/32", "2001:db8::/32", "cidr-host-bits"},
		{"brackets around a network go", "[2001:db8::]/32,[2001:db9::/32]", "2001:db8::/32,2001:db9::/32", ""},
		{"a mapped network becomes IPv4", "::ffff:192.0.2.0/120", "192.0.2.0/24", ""},
		{"a network of length 0 stays", "0.0.0.0/0", "0.0.0.0/0", "match-all-cidr"},
		{"a very short network is too broad", "128.0.0.0/1", "128.0.0.0/1", "over-broad"},
		{"unique local addresses are not too broad", "fc00::/7", "fc00::/7", ""},
		{"global unicast is too broad", "2000::/3", "2000::/3", "over-broad"},
		{"a range becomes networks", "192.0.2.10-192.0.2.13", "192.0.2.10/31,192.0.2.12/31", "range-entry"},
		{"a range of one address", "192.0.2.10-192.0.2.10", "192.0.2.10/32", "range-entry"},
		{"an IPv6 range becomes networks", "2001:db8::1-2001:db8::3", "2001:db8::1/128,2001:db8::2/127", "range-entry"},
		{"the widest range is one network", "0.0.0.0-255.255.255.255", "0.0.0.0/0", "range-entry/match-all-cidr"},
		{"a name with hyphens is no range", "10-244-1-7.ns.pod", "10-244-1-7.ns.pod,.10-244-1-7.ns.pod", ""},
		{"a part of an address stays and is reported", "10.,1.2.3,.9.9", "10.,1.2.3,.9.9", "partial-ip/partial-ip/partial-ip"},
		{"duplicates of generated entries go without a warning", "LOCALHOST,.SVC,10.96.7.7/12,Kubernetes.Default,cp.example.org", "", ""},
		{"duplicates among themselves go", "a.example,A.EXAMPLE,.a.example", "a.example,.a.example", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := compose(t, plain(tc.user))
			if diff := cmp.Diff(strings.TrimSuffix(generated+","+tc.want, ","), r.Value); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.warns, codes(r.Warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			for _, w := range r.Warnings {
				if !strings.HasPrefix(w.Place.String(), "Secret team-a/proxy, key noProxy entry ") || w.Message == "" {
					t.Errorf("warning %+v does not say where or what", w)
				}
			}
		})
	}
}

// TestCompose_RejectsEntries has one finding of each entry, which names its place and holds no password. Other entries are
// in TestCompose_SaysWhatIsWrongWithAnEntry.
func TestCompose_RejectsEntries(t *testing.T) {
	t.Parallel()
	for code, entries := range map[finding.Code]map[string]string{
		noproxy.CodeForbiddenCharacter: {
			"a double quote":             `exa"mple.net`,
			"a single quote":             `exa'mple.net`,
			"a backslash":                `example.net\`,
			"a command substitution":     `$(id).example.net`,
			"a backtick":                 "`id`.example.net",
			"a percent sign":             "exa%41mple.net",
			"a zone":                     "fe80::1%eth0",
			"a semicolon":                "a.example;b.example",
			"a bar":                      "a.example|b.example",
			"userinfo":                   "user:hunter2@example.net",
			"the local token of Windows": "<local>",
			"a template":                 "{{.Values.host}}",
			"a byte order mark":          "\ufeffexample.net",
			"a no-break space":           "example.net\u00a0",
			"a zero-width space":         "exa\u200bmple.net",
			"text that is not UTF-8":     "exa\xffmple.net",
		},
		noproxy.CodeControlCharacter: {
			"a NUL":          "exa\x00mple.net",
			"a bell":         "exa\x07mple.net",
			"a vertical tab": "exa\vmple.net",
			"a delete":       "exa\x7fmple.net",
			"a C1 control":   "exa\u0085mple.net",
		},
		noproxy.CodeURLEntry: {
			"a URL":                 "http://example.net",
			"a URL with a password": "https://u:hunter2@example.net/",
			"a path":                "example.net/path",
			"a slash at the end":    "example.net/",
			"a URL without scheme":  "//example.net",
		},
		noproxy.CodeBadCIDR: {
			"a range backwards":       "10.0.0.9-10.0.0.1",
			"a range of two families": "10.0.0.1-fd00::1",
			"a range in short form":   "10.0.0.1-20",
			"an open range":           "10.0.0.1-",
		},
		noproxy.CodeBadPort: {
			"an empty port":                 "example.net:",
			"port 0":                        "example.net:0",
			"a port beyond 16 bits":         "example.net:65536",
			"a port that is a word":         "example.net:http",
			"a bad port behind brackets":    "[fd00::1]:99999",
			"an empty port behind brackets": "[fd00::1]:",
		},
		noproxy.CodeUnsupportedWildcard: {
			"two stars":            "**",
			"a star without a dot": "*example.net",
			"a star at the end":    "10.*",
			"a star in the middle": "a.*.example.net",
			"star-dot twice":       "*.*.example.net",
			"a star with a port":   "*:80",
		},
		noproxy.CodeBadName: {
			"only a star and a dot":                   "*.",
			"only a dot":                              ".",
			"two dots in front":                       "..example.net",
			"an empty label":                          "example..net",
			"only a port":                             ":8080",
			"a label of 64 characters":                strings.Repeat("a", 64) + ".example.net",
			"a name of 254 characters":                strings.Repeat("a.", 126) + "aa",
			"a hyphen in front":                       "-example.net",
			"brackets around IPv4":                    "[192.0.2.7]",
			"an octet beyond 255":                     "10.1.2.300",
			"an address with leading zeros":           "010.001.002.003",
			"five parts":                              "1.2.3.4.5",
			"a part beyond 255":                       "10.300",
			"an empty part":                           "10..3",
			"a number beyond any address":             "4294967296",
			"an international name that IDNA refuses": "a\u0301\u0300\u2603-.example",
			"digits of another script":                "１０.１.２.３",
		},
	} {
		for name, entry := range entries {
			t.Run(string(code)+", "+name, func(t *testing.T) {
				t.Parallel()
				_, err := noproxy.Compose(plain("ok.example," + entry))
				found := finding.Of(err)
				if len(found) != 1 || found[0].Code != code || !slices.Contains(noproxy.Codes(), code) {
					t.Fatalf("error is %v, want one %s", err, code)
				}
				if want := "Secret team-a/proxy, key noProxy entry 2"; !strings.HasPrefix(found[0].Place.String(), want) {
					t.Errorf("where is %q, want %q", found[0].Place.String(), want)
				}
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("error holds a password: %v", err)
				}
			})
		}
	}
}

// TestCompose_SaysWhatIsWrongWithAnEntry has what people write in place of a length and of an address.
func TestCompose_SaysWhatIsWrongWithAnEntry(t *testing.T) {
	t.Parallel()
	const in = `Secret team-a/proxy, key noProxy entry 1 `
	for entry, want := range map[string]string{
		"10.0.0.0/33":        `"10.0.0.0/33": the length of an IPv4 network is at most 32 (bad-cidr); write address/length`,
		"fd00::/129":         `"fd00::/129": the length of an IPv6 network is at most 128 (bad-cidr); write address/length`,
		"[fd00::]/129":       `"[fd00::]/129": the length of an IPv6 network is at most 128 (bad-cidr); write address/length`,
		"10.0.0.0/255.0.0.0": `"10.0.0.0/255.0.0.0": the network has a netmask (bad-cidr); write address/length, without a port`,
		"10.0.0.0/8:80":      `"10.0.0.0/8:80": the network has a port (bad-cidr); write address/length, without a port`,
		"10.0.0.0/":          `"10.0.0.0/": the network has no length (bad-cidr); write address/length`,
		"10.0.0.0/08":        `"10.0.0.0/08": the length of the network is not a number without leading zeros (bad-cidr); write address/length`,
		"10.0.0/8":           `"10.0.0/8": the text before the slash is not an address (bad-cidr); write the address in full`,
		"example.net/24":     `"example.net/24": the text before the slash is not an address (bad-cidr); write the address in full`,
		"010.0.0.0/8":        `"010.0.0.0/8": the text before the slash is not an address (bad-cidr); write the address in full`,
		"fd00::1::2":         `"fd00::1::2": the entry is neither an IPv6 address nor host:port (bad-name); write [address]:port for IPv6 with a port`,
		"[fd00::1":           `"[fd00::1": the bracket is not closed (bad-name); write the IPv6 address without brackets`,
		"[a.example]":        `"[a.e…": the brackets do not hold an IPv6 address (bad-name); write names and IPv4 addresses without brackets`,
		"[fd00::1]x":         `"[fd00::1]…": there is text after the bracket (bad-name); write the IPv6 address without brackets`,
	} {
		if _, err := noproxy.Compose(plain(entry)); err == nil || err.Error() != in+want {
			t.Errorf("%s:\ngot  %v\nwant %s", entry, err, in+want)
		}
	}
	network := plain("")
	network.PodCIDRs = []string{"10.0.0.0/33"}
	const field = `spec.clusterNetwork.pods.cidrBlocks[0] "10.0.0.0/33": the length of an IPv4 network is at most 32 (bad-cidr); ` +
		"write address/length"
	if _, err := noproxy.Compose(network); err == nil || err.Error() != field {
		t.Errorf("a field of the Cluster:\ngot  %v\nwant %s", err, field)
	}
}

// TestCompose_ShowsTheEntryOfAFinding compares the shown part of entries: no finding shows what may be a password, or
// more than a terminal or a condition can take.
func TestCompose_ShowsTheEntryOfAFinding(t *testing.T) {
	t.Parallel()
	key := "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDTqdAs/tZQi3"
	for name, tc := range map[string]struct{ list, want string }{
		"a network":                            {"10.0.0.0/33", `"10.0.0.0/33"`},
		"a warning":                            {"com", `"com"`},
		"a wildcard":                           {"reg*.example.net", `"reg*.example.net"`},
		"a port that is none":                  {"registry.example.net:99999", `"registry.example.net:99999"`},
		"an IPv6 address with too many groups": {"1:2:3:4:5:6:7:8:9", `"1:2:3:4:5:6:7:8:9"`},
		"a URL":                                {"http://registry.example.net:5000", `"http://registry.example.net:5000"`},
		"a URL with a path":                    {"https://hooks.example.net/services/T0/hunter2", `"https://hooks.example.net…"`},
		"a path":                               {"example.net/hunter2", `"example.net…"`},
		"quotes":                               {`"example.net"`, `"\"example.net\""`},
		"semicolons":                           {"10.0.0.0/8;example.net", `"10.0.0.0…"`},
		"an invisible character":               {"example.net\u200b", `"example.net\u200b"`},
		"an escape sequence of a terminal":     {"\x1b[31mexample.net", ""},
		"bytes that are not UTF-8":             {"exa\xffmple.net", `"exa\xffmple.net"`},
		"a long name":                          {strings.Repeat("a.", 100) + "-", `"` + strings.Repeat("a.", 32) + `…"`},
		"a password as a port":                 {"user:hunter2", `"user…"`},
		"a password of hexadecimal digits":     {"user:deadbeef", `"user…"`},
		"a password of colons":                 {"user:hunter2:hunter2", `"user…"`},
		"userinfo":                             {"user:hunter2@example.net", ""},
		"userinfo of a URL":                    {"http://user:hunter2@example.net:3128", ""},
		"userinfo with a comma":                {"example.net/,http://user:hunter,2hunter.,x@example.net", ""},
		"a password":                           {"hunter2!", ""},
		"a password with a control character":  {"hunter2\x01", ""},
		"an encoded password":                  {"hunter%402", ""},
		"a word of a header":                   {"-----BEGIN PRIVATE KEY----- " + key, ""},
		"a line of a key":                      {key, ""},
		"a token":                              {strings.Repeat("0a", 32) + "-", ""},
	} {
		r, err := noproxy.Compose(plain(tc.list))
		found := append(finding.Of(err), r.Warnings...)
		if len(found) == 0 {
			t.Errorf("%s: no finding", name)
		}
		for _, f := range found[:min(1, len(found))] {
			if !strings.HasPrefix(f.Place.String(), "Secret team-a/proxy, key noProxy entry ") {
				continue
			}
			_, entry, _ := strings.Cut(f.Place.String(), " entry ")
			if _, shown, _ := strings.Cut(entry, " "); shown != tc.want {
				t.Errorf("%s: shows %s, want %s", name, shown, tc.want)
			}
		}
		if strings.Contains(fmt.Sprint(found), "hunter") {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestCompose_ReportsAllFindingsInInputOrder(t *testing.T) {
	t.Parallel()
	in := plain("a:0,ok.example,http://b")
	in.PodCIDRs = []string{"10.0.0.0/8", "nonsense"}
	in.ServiceDomain = "bad domain"
	in.EndpointHost = "*"
	in.Infrastructure = told("", "10.0.0.0/99") // only a warning
	in.DNSAddresses = []string{"dns"}
	in.Installation = noproxy.Layer{Place: finding.Key("noProxy").Of("Secret system/proxy"), Text: "**"}
	_, err := noproxy.Compose(in)
	var got []string
	for _, e := range finding.Of(fmt.Errorf("wrapped: %w", err)) {
		got = append(got, string(e.Code)+" "+e.Place.String())
	}
	want := []string{
		`bad-cidr spec.clusterNetwork.pods.cidrBlocks[1] "nonsense"`, "bad-name DNS Service address 1", "bad-name spec.clusterNetwork.serviceDomain",
		"bad-name spec.controlPlaneEndpoint.host", `unsupported-wildcard Secret system/proxy, key noProxy entry 1 "**"`,
		`bad-port Secret team-a/proxy, key noProxy entry 1 "a:0"`, `url-entry Secret team-a/proxy, key noProxy entry 3 "http://b"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestCompose_BoundsTheFindingsOfJunk(t *testing.T) {
	t.Parallel()
	_, err := noproxy.Compose(plain(strings.Repeat("%,", 1<<19)))
	found := finding.Of(err)
	if len(found) != 101 || !strings.Contains(found[100].Message, "524188 more") {
		t.Errorf("got %d findings, last %v", len(found), found[len(found)-1])
	}
}

func TestCompose_ReadsTheCluster(t *testing.T) {
	t.Parallel()
	dual := noproxy.Input{
		PodCIDRs: []string{"fd00:10:244::/56", "10.244.0.0/16"}, ServiceCIDRs: []string{"fd00:10:96::/112", "10.96.0.0/12"},
		ServiceDomain: "Corp.Example.", EndpointHost: "[2001:DB8::10]:6443",
	}
	// of returns the generated list with other Service networks and addresses.
	of := func(services string) string {
		return strings.Replace(generated, "10.96.0.0/12,10.96.0.1,10.96.0.10", services, 1)
	}
	services := func(networks ...string) func(*noproxy.Input) {
		return func(in *noproxy.Input) { in.ServiceCIDRs = networks }
	}
	endpoint := func(host string) func(*noproxy.Input) { return func(in *noproxy.Input) { in.EndpointHost = host } }
	for name, test := range map[string]struct {
		change      func(*noproxy.Input)
		want, warns string
	}{
		"an empty Cluster gets the defaults of kubeadm": {
			func(in *noproxy.Input) { *in = noproxy.Input{} },
			"localhost,127.0.0.1,10.96.0.0/12,10.96.0.1,10.96.0.10,kubernetes,kubernetes.default,.svc,.cluster.local,.cluster.local.", "defaults-used/defaults-used/endpoint-unset/no-pod-network",
		},
		"both families, IPv6 first": {
			func(in *noproxy.Input) { *in = dual },
			"localhost,127.0.0.1,::1,fd00:10:244::/56,10.244.0.0/16,fd00:10:96::/112,10.96.0.0/12,fd00:10:96::1,fd00:10:96::a,10.96.0.1,10.96.0.10," +
				"kubernetes,kubernetes.default,.svc,.corp.example,.corp.example.,2001:db8::10", "",
		},
		"the shell profile leaves IPv6 networks out": {func(in *noproxy.Input) {
			*in = dual
			in.Profile = noproxy.ProfileShell
			in.User.Text = "2001:db8:7::/48,[2001:db8::7]:443,2001:db8::8"
		}, "localhost,127.0.0.1,::1,10.244.0.0/16,10.96.0.0/12,fd00:10:96::1,fd00:10:96::a,10.96.0.1,10.96.0.10," +
			"kubernetes,kubernetes.default,.svc,.corp.example,.corp.example.,2001:db8::10,2001:db8::8", "ipv6-bare/port-entry/ipv6-bare"},
		"networks are masked": {func(in *noproxy.Input) {
			in.PodCIDRs, in.ServiceCIDRs = []string{"10.244.7.9/16"}, []string{"10.96.3.4/12"}
		}, generated, "cidr-host-bits/cidr-host-bits"},
		"another DNS address replaces the tenth": {
			func(in *noproxy.Input) { in.DNSAddresses = []string{"10.96.0.53"} }, of("10.96.0.0/12,10.96.0.1,10.96.0.53"), "",
		},
		"the endpoint is lower case without dot and port":      {endpoint(" CP.Example.ORG.:6443\n"), generated, ""},
		"an endpoint that is covered already is still written": {endpoint("10.96.3.3"), strings.Replace(generated, "cp.example.org", "10.96.3.3", 1), ""},
		"metadata and infrastructure hosts come behind the endpoint": {func(in *noproxy.Input) {
			in.Infrastructure = told("GCPManagedCluster", "api.cloud.example:443", "198.51.100.0/24")
			in.Installation.Text, in.User.Text, in.Variable.Text = ".corp.example", "a.example", "A.example,10.9.0.0/16"
		}, generated + ",169.254.169.254,metadata.google.internal,metadata,api.cloud.example,198.51.100.0/24,.corp.example," +
			"a.example,.a.example,10.9.0.0/16", ""},
		"a Service network too small for DNS":          {services("10.96.0.0/30"), of("10.96.0.0/30,10.96.0.1"), "bad-service-cidr"},
		"a Service network of one address":             {services("255.255.255.255/32"), of("255.255.255.255/32"), "bad-service-cidr"},
		"a second Service network of the same family":  {services("10.96.0.0/12", "10.112.0.0/16"), of("10.96.0.0/12,10.112.0.0/16,10.96.0.1,10.96.0.10"), "bad-service-cidr"},
		"a Service network on loopback":                {services("127.1.0.0/16"), of("127.1.0.0/16,127.1.0.1,127.1.0.10"), "bad-service-cidr"},
		"a link-local Service network":                 {services("169.254.0.0/16"), of("169.254.0.0/16,169.254.0.1,169.254.0.10"), "bad-service-cidr"},
		"a multicast Service network":                  {services("224.0.0.0/16"), of("224.0.0.0/16,224.0.0.1,224.0.0.10"), "bad-service-cidr"},
		"a Service network of the unspecified address": {services("0.0.0.0/16"), of("0.0.0.0/16,0.0.0.1,0.0.0.10"), "bad-service-cidr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := plain("")
			test.change(&in)
			r := compose(t, in)
			if diff := cmp.Diff(test.want, r.Value); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.warns, codes(r.Warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCompose_KnowsANetworkOfTheNodes has no network by itself that may be that of nodes.
func TestCompose_KnowsANetworkOfTheNodes(t *testing.T) {
	t.Parallel()
	node := noproxy.Infrastructure{Entries: []noproxy.Fact{{Text: "10.0.0.0/16", Node: true}}}
	for name, test := range map[string]struct {
		change func(*noproxy.Input)
		known  bool
		// marked is the entry that is marked as one of nodes.
		marked string
	}{
		"nothing":                      {change: func(*noproxy.Input) {}},
		"the infrastructure's network": {change: func(in *noproxy.Input) { in.Infrastructure = node }, known: true, marked: "10.0.0.0/16"},
		"another fact of it":           {change: func(in *noproxy.Input) { in.Infrastructure.Entries = []noproxy.Fact{{Text: "10.0.0.0/16"}} }},
		"a group that is left out": {change: func(in *noproxy.Input) {
			in.Infrastructure, in.OmitGroups = node, []noproxy.Group{noproxy.GroupInfrastructure}
		}},
		"a network that Pods have, too": {change: func(in *noproxy.Input) { in.Infrastructure, in.PodCIDRs = node, []string{"10.0.0.0/16"} }, known: true, marked: "10.0.0.0/16"},
		"a network that is the first": {change: func(in *noproxy.Input) {
			in.Infrastructure, in.PodCIDRs, in.OmitGroups = node, []string{"10.0.0.0/16"}, []noproxy.Group{noproxy.GroupLoopback}
		}, known: true, marked: "10.0.0.0/16"},
		"a network of the user":          {change: func(in *noproxy.Input) { in.User.Text = "10.0.0.0/16" }, known: true},
		"a network of the installation":  {change: func(in *noproxy.Input) { in.Installation.Text = "10.0.0.0/16" }, known: true},
		"a name and an address of users": {change: func(in *noproxy.Input) { in.User.Text = "a.example,10.0.0.1" }},
		"a star":                         {change: func(in *noproxy.Input) { in.User.Text = "*" }, known: true},
	} {
		in := plain("")
		test.change(&in)
		r, err := noproxy.Compose(in)
		marked := ""
		for _, e := range r.Entries {
			if e.Node {
				marked += e.Value
			}
		}
		if err != nil || r.HasNodeNetwork != test.known || marked != test.marked {
			t.Errorf("%s: known %v, marked %q, error %v", name, r.HasNodeNetwork, marked, err)
		}
	}
}

func TestCompose_EveryGroupCanBeLeftOut(t *testing.T) {
	t.Parallel()
	full := plain("user.example")
	full.Infrastructure = told("AWSCluster", "api.cloud.example")
	full.Installation.Text = "installation.example"
	all := compose(t, full)
	for _, g := range noproxy.Groups() {
		in := full
		in.OmitGroups = []noproxy.Group{g}
		r := compose(t, in)
		want := slices.DeleteFunc(slices.Clone(all.Entries), func(e noproxy.Entry) bool { return e.Group == g })
		if len(want) == len(all.Entries) {
			t.Errorf("group %s has no entry to leave out", g)
		}
		if diff := cmp.Diff(want, r.Entries); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", g, diff)
		}
	}
	in := full
	in.OmitGroups = noproxy.Groups()
	if r, err := noproxy.Compose(in); err != nil || r.Value != "" || len(r.Entries) != 0 {
		t.Errorf("without all groups: %+v, %v", r, err)
	}
}

func TestCompose_Star(t *testing.T) {
	t.Parallel()
	in := plain("a.example,*,*,b.example")
	r := compose(t, in)
	want := []noproxy.Entry{{
		Value: "*", Group: noproxy.GroupUser,
		Place: finding.Key("noProxy").At(2).Of("Secret team-a/proxy"),
	}}
	if diff := cmp.Diff(want, r.Entries); diff != "" || r.Value != "*" || codes(r.Warnings) != "wildcard-alone/wildcard-alone" {
		t.Errorf("value %q, warnings %v, entries (-want +got):\n%s", r.Value, r.Warnings, diff)
	}
	in.OmitGroups = []noproxy.Group{noproxy.GroupUser}
	if r, err := noproxy.Compose(in); err != nil || r.Value != generated {
		t.Errorf("a star in a group that is left out: %q, %v", r.Value, err)
	}
	if _, err := noproxy.Compose(plain("*,a:0")); len(finding.Of(err)) != 1 {
		t.Errorf("a star hides a bad entry: %v", err)
	}
	if r, err := noproxy.Compose(plain("x.example," + names(8000, 30) + ",*")); err != nil || r.Value != "*" {
		t.Errorf("a star behind too many entries: %v", err)
	}
}

// names returns n names of the given length.
func names(n, length int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("h%0*d.example.net", length-len("h.example.net"), i)
	}
	return strings.Join(out, ",")
}

func TestCompose_Length(t *testing.T) {
	t.Parallel()
	r := compose(t, plain(names(3000, 38)))
	if strings.Contains(r.Value, ",.h") || codes(r.Warnings) != "size" {
		t.Errorf("3000 names: dotted forms %t, warnings %q", strings.Contains(r.Value, ",.h"), codes(r.Warnings))
	}
	// One dotted name of exactly the length that is left.
	left := 131072 - len("NO_PROXY=") - 1 - len(generated) - 1
	filler := strings.Repeat("."+strings.Repeat("a", 49), 4)
	var list []string
	used := 0
	for i := 0; left-used > 250; i++ {
		s := fmt.Sprintf(".n%04d%s", i, filler)
		list, used = append(list, s), used+len(s)+1
	}
	last := strings.Repeat(".b", (left-used)/2) + strings.Repeat("b", (left-used)%2)
	list = append(list, last)
	exact, err := noproxy.Compose(plain(strings.Join(list, ",")))
	if err != nil || len("NO_PROXY=")+len(exact.Value)+1 != 131072 {
		t.Fatalf("value of %d bytes: %v", len(exact.Value), err)
	}
	_, err = noproxy.Compose(plain(strings.Join(append(list, ".c"), ",")))
	found := finding.Of(err)
	if len(found) != 1 || found[0].Code != noproxy.CodeTooLong ||
		found[0].Place.String() != fmt.Sprintf("Secret team-a/proxy, key noProxy entry %d", len(list)+1) {
		t.Errorf("one entry more: %v", err)
	}
}

// TestCompose_NamesAnEntryWithoutAPlaceThatDoesNotFit has so many networks of Pods that one of the names of Kubernetes is
// the first entry that does not fit.
func TestCompose_NamesAnEntryWithoutAPlaceThatDoesNotFit(t *testing.T) {
	t.Parallel()
	in := plain("")
	size := 131072 - len("NO_PROXY=") - 1 - strings.Index(generated, ",kubernetes")
	for i := 0; size > 20; i++ {
		network := fmt.Sprintf("1.%d.%d.0/24", i/256, i%256)
		in.PodCIDRs, size = append(in.PodCIDRs, network), size-len(network)-1
	}
	_, err := noproxy.Compose(in)
	found := finding.Of(err)
	if len(found) != 1 || found[0].Code != noproxy.CodeTooLong || found[0].Place.String() != "API Service name" {
		t.Errorf("got %v", err)
	}
}

func TestCompose_UnknownProfile(t *testing.T) {
	t.Parallel()
	if _, err := noproxy.Compose(noproxy.Input{Profile: "portable"}); err == nil || finding.Of(err) != nil {
		t.Errorf("got %v, want an error that is no finding", err)
	}
}

func TestParseOmittedGroups(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, value string
		want        []noproxy.Group
	}{
		{"an empty value leaves nothing out", "", nil},
		{"blanks and order do not matter", " -user, -metadata ,-user", []noproxy.Group{noproxy.GroupMetadata, noproxy.GroupUser}},
	} {
		got, err := noproxy.ParseOmittedGroups(tc.value)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, %v", tc.name, got, err)
		}
	}
	for _, tc := range []struct{ name, value, want string }{
		{"an item without a hyphen", "-user,metadata", "parsing omitted groups item 2: it does not start with a hyphen; write -metadata"},
		{"an unknown group", "-secrets", "parsing omitted groups item 1: unknown group; known are loopback, pods, services, service-addresses, api-names, service-domain, endpoint, metadata, infrastructure, installation, user"},
		{"only a hyphen", "-", "parsing omitted groups item 1: unknown group; known are loopback, pods, services, service-addresses, api-names, service-domain, endpoint, metadata, infrastructure, installation, user"},
	} {
		if _, err := noproxy.ParseOmittedGroups(tc.value); err == nil || err.Error() != tc.want {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	r := compose(t, plain("a.example"))
	all := r.Origins(1 << 20)
	if !strings.HasPrefix(all, "localhost\tloopback\t") || !strings.Contains(all, "\n127.0.0.1\tloopback\t") ||
		!strings.HasSuffix(all, "\n.a.example\tuser\tSecret team-a/proxy, key noProxy entry 1\n") ||
		strings.Count(all, "\n") != len(r.Entries) {
		t.Errorf("listing is\n%s", all)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(all, "\n"), "\n")
	for limit := range len(all) + 2 {
		want := ""
		for n := range lines { // the longest that fits
			if text := fmt.Sprintf("%s... and %d more\n", strings.Join(lines[:n], ""), len(lines)-n); len(text) <= limit {
				want = text
			}
		}
		if limit >= len(all) {
			want = all
		}
		if got := r.Origins(limit); got != want {
			t.Fatalf("limit %d:\n%q, want\n%q", limit, got, want)
		}
	}
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
