package explain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

func TestParseDestination_ReadsEveryFormThatPeoplePaste(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, name, url string }{
		"a name":                                {"registry.example.com", "registry.example.com", "https://registry.example.com"},
		"a name with a trailing dot":            {"kubernetes.default.svc.cluster.local.", "kubernetes.default.svc.cluster.local.", "https://kubernetes.default.svc.cluster.local."},
		"a name and a port":                     {"registry.example.com:5000", "registry.example.com:5000", "https://registry.example.com:5000"},
		"port 80 means http":                    {"registry.example.com:80", "registry.example.com:80", "http://registry.example.com:80"},
		"an IPv6 address that ends like a port": {"fd00::80", "fd00::80", "https://[fd00::80]"},
		"an IPv4 address":                       {"10.96.0.1", "10.96.0.1", "https://10.96.0.1"},
		"a bare IPv6 address":                   {"fd00::1", "fd00::1", "https://[fd00::1]"},
		"an IPv6 address in brackets":           {"[fd00::1]", "[fd00::1]", "https://[fd00::1]"},
		"an IPv6 address and a port":            {"[fd00::1]:6443", "[fd00::1]:6443", "https://[fd00::1]:6443"},
		"an IPv6 address and port 80":           {"[fd00::1]:80", "[fd00::1]:80", "http://[fd00::1]:80"},
		"a URL":                                 {"http://10.1.2.3:8080/metrics?x=1#y", "http://10.1.2.3:8080", "http://10.1.2.3:8080"},
		"a URL with a user and a password":      {"https://user:s3cr@et@example.com/x", "https://example.com", "https://example.com"},
		"userinfo without a scheme":             {"user:s3cret@example.com", "example.com", "https://example.com"},
		"the scheme in upper case":              {"HTTPS://Example.com", "https://Example.com", "https://Example.com"},
		"an image reference":                    {"registry.example.com/team/app:v1", "registry.example.com", "https://registry.example.com"},
		"blanks around it":                      {" example.com\n", "example.com", "https://example.com"},
		"an international name":                 {"bücher.example", "bücher.example", "https://bücher.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := explain.ParseDestination(test.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(explain.Destination{Name: test.name, URL: test.url}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseDestination_RejectsInvalidDestinations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"nothing":                       {"", "host is empty"},
		"blanks":                        {" \t", "host is empty"},
		"only userinfo":                 {"https://user:s3cret@", "host is empty"},
		"a path":                        {"/etc/hosts", "host is empty"},
		"another scheme":                {"ftp://s3cret.example.com", "the scheme is neither http nor https"},
		"a network":                     {"10.0.0.0/8", "it is a network; give one of its addresses"},
		"an IPv6 network":               {"fd00::/8", "it is a network; give one of its addresses"},
		"a zone":                        {"fe80::1%eth0", "it has a zone"},
		"a zone in brackets":            {"https://[fe80::1%25eth0]/", "it has a zone"},
		"a port that is too high":       {"example.com:70000", "port is not a number up to 65535"},
		"a port of letters":             {"example.com:https", "port is not a number up to 65535"},
		"a bracket that is open":        {"[fd00::1", "bracket is not closed"},
		"brackets around a name":        {"[example.com]", "brackets do not hold an IPv6 address"},
		"text behind the bracket":       {"[fd00::1]x", "text after the bracket is not a port"},
		"several colons in no address":  {"a:b:c", "port is not a number"},
		"a blank in the name":           {"exa mple.com", "a character that no host name has"},
		"a control character":           {"exa\x1b[31mmple.com", "a character that no host name has"},
		"a newline and a second header": {"example.com\nX-Evil: 1", "port is not a number"},
		"bytes that are not UTF-8":      {"exa\xffmple.com", "a character that no host name has"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := explain.ParseDestination(test.text)
			if err == nil {
				t.Fatalf("got %+v", got)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q holds the text", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q lacks %q", err, test.want)
			}
		})
	}
}

// FuzzParseDestination proves that what is accepted is a URL that every client takes, holds no userinfo, and reads back
// as itself.
func FuzzParseDestination(f *testing.F) {
	for _, seed := range []string{
		"example.com", "fd00::1", "[fd00::1]:80", "https://u:p@h:1/x?y", "10.0.0.0/8", "a@b@c",
		"[", "::ffff:1.2.3.4", "x%00", "http://", "1.2.3.4:080", "é.com:80",
	} {
		f.Add(seed)
	}
	clients := match.Clients()
	f.Fuzz(func(t *testing.T, text string) {
		d, err := explain.ParseDestination(text)
		if err != nil {
			return
		}
		if strings.Contains(d.URL, "@") || strings.Contains(d.Name, "@") || strings.Count(d.URL, "/") != 2 ||
			strings.ContainsAny(d.Name, "\x00\n\r\x1b") {
			t.Errorf("%q gives %+v", text, d)
		}
		for _, c := range clients {
			if _, err := c.Match("localhost", d.URL); err != nil {
				t.Errorf("%s does not take %q: %v", c, d.URL, err)
			}
		}
		again, err := explain.ParseDestination(d.Name)
		if err != nil || again != d {
			t.Errorf("%+v reads back as %+v, %v", d, again, err)
		}
	})
}

// network is a Cluster with everything.
func network() noproxy.Input {
	return noproxy.Input{
		PodCIDRs: []string{"10.244.0.0/16", "fd00:10:244::/56"}, ServiceCIDRs: []string{"10.96.0.0/16", "fd00:10:96::/112"},
		ServiceDomain: "corp.internal", EndpointHost: "cp.example.com",
		Infrastructure: infrastructure.Of("GCPCluster").Infrastructure,
		// Neither of these changes what belongs to the Cluster.
		Profile: noproxy.ProfileShell, User: noproxy.Layer{Text: "*, bad/entry"},
	}
}

func cluster(t *testing.T, in noproxy.Input, port int32) explain.Cluster {
	t.Helper()
	c, err := explain.NewCluster(in, port)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDestinations_AreTheImportantOnesOfTheCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in   noproxy.Input
		port int32
		want []string
	}{
		"a Cluster with everything": {network(), 443, []string{
			"https://10.96.0.1", "https://[fd00:10:96::1]", "https://kubernetes", "https://kubernetes.default", "https://kubernetes.default.svc",
			"https://kubernetes.default.svc.corp.internal", "https://kubernetes.default.svc.corp.internal.", "http://10.96.0.10", "http://[fd00:10:96::a]",
			"http://10.244.0.17", "http://[fd00:10:244::11]", "https://cp.example.com:443",
			"http://169.254.169.254", "http://metadata.google.internal", "http://metadata", "https://registry.example.com",
		}},
		"a Cluster with nothing": {noproxy.Input{}, 0, []string{
			"https://10.96.0.1", "https://kubernetes", "https://kubernetes.default", "https://kubernetes.default.svc",
			"https://kubernetes.default.svc.cluster.local", "https://kubernetes.default.svc.cluster.local.", "http://10.96.0.10", "https://registry.example.com",
		}},
		"an IPv6 endpoint without a port, and one address for Pods": {noproxy.Input{EndpointHost: "fd00::5", PodCIDRs: []string{"10.1.1.1/32"}}, 0, []string{
			"https://10.96.0.1", "https://kubernetes", "https://kubernetes.default", "https://kubernetes.default.svc",
			"https://kubernetes.default.svc.cluster.local", "https://kubernetes.default.svc.cluster.local.", "http://10.96.0.10",
			"http://10.1.1.1", "https://[fd00::5]:6443", "https://registry.example.com",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, test.in, test.port)
			var urls []string
			for i, d := range c.Destinations() {
				urls = append(urls, d.URL)
				last := i == len(test.want)-1
				if d.InCluster == last || d.CounterCheck != last || d.What == "" {
					t.Errorf("%+v", d)
				}
				if c.Contains(d) != d.InCluster {
					t.Errorf("%s: Contains is %t", d.URL, c.Contains(d))
				}
			}
			if diff := cmp.Diff(test.want, urls); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestContains(t *testing.T) {
	t.Parallel()
	c := cluster(t, network(), 0)
	for text, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8080": true, "127.9.9.9": true, "::1": true, "[::ffff:127.0.0.1]:80": true,
		"10.244.255.255": true, "10.245.0.0": false, "fd00:10:244::ff": true, "::ffff:10.244.0.1": true, "10.96.77.7:443": true, "10.97.0.1": false,
		"web.shop.svc": true, "web.shop.svc.": true, "web.shop.svc.corp.internal": true, "https://WEB.shop.svc.Corp.Internal./x": true, "corp.internal": false,
		"kubernetes": true, "kubernetes.default": true, "mykubernetes": false, "web.shop": false, "xsvc": false,
		"cp.example.com:6443": true, "x.cp.example.com": false, "example.com": false,
		"169.254.169.254": true, "fd00:ec2::254": true, "metadata": true, "registry.example.com": false, "8.8.8.8": false,
	} {
		d, err := explain.ParseDestination(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Contains(d); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
}

// TestOmittedGroups_AreNotExpectedToBeDirect has groups that the user has left out: what only they have may be proxied.
func TestOmittedGroups_AreNotExpectedToBeDirect(t *testing.T) {
	t.Parallel()
	in := network()
	in.OmitGroups = []noproxy.Group{noproxy.GroupMetadata, noproxy.GroupAPINames, noproxy.GroupLoopback}
	c := cluster(t, in, 0)
	left := 0
	for _, d := range c.Destinations() {
		if asked := strings.HasSuffix(d.What, ", left out of NO_PROXY as asked for"); asked == (d.InCluster || d.CounterCheck) {
			t.Errorf("%+v", d)
		} else if asked {
			left++
		}
	}
	if left != 5 { // two short names of the API Service, three of the metadata service
		t.Errorf("%d destinations are left out", left)
	}
	for text, want := range map[string]bool{
		"localhost": false, "169.254.169.254": false, "fd00:ec2::254": false, "kubernetes": false, "kubernetes.default.svc": true, "10.244.1.1": true,
	} {
		if d, err := explain.ParseDestination(text); err != nil || c.Contains(d) != want {
			t.Errorf("%s: not %t, error %v", text, want, err)
		}
	}
}

func TestNewCluster_RefusesABrokenNetwork(t *testing.T) {
	t.Parallel()
	_, err := explain.NewCluster(noproxy.Input{PodCIDRs: []string{"10.0.0.0/33"}, ServiceDomain: "a..b"}, 0)
	if found := finding.Of(err); len(found) != 2 {
		t.Errorf("error %v", err)
	}
}

func TestChoose_NamesThePositionOfABadDestination(t *testing.T) {
	t.Parallel()
	_, err := cluster(t, network(), 0).Choose([]string{"example.com", "ftp://s3cret"})
	if want := "destination 2: the scheme is neither http nor https; use a URL, a host, host:port or an address"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
