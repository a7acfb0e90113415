package settings_test

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

func TestReadinessEndpoints_AreSeparatedAsNoProxyIs(t *testing.T) {
	t.Parallel()
	s := parse(t, "trustedCA", certificate(t, func(*x509.Certificate) {}), "readinessEndpoints", "- HTTPS://Registry.Example.com:0443/v2/?a=b%20c\r\n"+
		"- http://[2001:DB8::1]/,https://B\u00fccher.example\thttps://192.0.2.1:8443?x='$(id);\n\n")
	if diff := cmp.Diff([]string{
		"https://registry.example.com:443/v2/?a=b%20c", "http://[2001:db8::1]/", "https://xn--bcher-kva.example",
		"https://192.0.2.1:8443?x='$(id);",
	}, s.ReadinessEndpoints); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadinessEndpoints_AreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"registry.example.com/s3cr":                          "not an http or https URL",
		"ftp://registry.example.com/s3cr":                    "not an http or https URL",
		"https://u:s3cr@registry.example.com/":               "a user or password in the URL",
		"https://s3cr@registry.example.com":                  "a user or password in the URL",
		"https:///s3cr":                                      "the host is missing",
		"https://s3cr..example/":                             "a host that is not a DNS name",
		"https://s3cr:0/":                                    "a port that is not a number from 1 to 65535",
		"https://[::1%25s3cr]/":                              "an IPv6 address that cannot be parsed",
		"https://a/s3cr#x":                                   "a fragment, which no server sees",
		"https://a/s3cr%2":                                   "a character in the path or query that a URL cannot hold",
		"https://a/s3cr\\\"`{{x}}":                           "a character in the path or query that a URL cannot hold",
		"https://a/s3cr\x00":                                 "a character in the path or query that a URL cannot hold",
		"https://a/s3cr\u00fc":                               "a character in the path or query that a URL cannot hold",
		"https://a/s3cr" + strings.Repeat("x", 2048-13):      "a URL of 2049 bytes; at most 2048 are allowed",
		"https://" + strings.Repeat("s3cr.", 60) + "example": "a host that is not a DNS name",
	} {
		_, err := settings.ParseSecret(data("httpProxy", "http://proxy:1", "readinessEndpoints", "https://a, "+text+"\nhttps://b"))
		found := finding.Of(err)
		if len(found) != 1 || found[0].Place.String() != "key readinessEndpoints entry 2" || found[0].Message != want ||
			found[0].Code != settings.CodeBadEndpoint || strings.Contains(err.Error(), "s3cr") {
			t.Errorf("%q gives %v, want entry 2: %s", text, err, want)
		}
	}
}

func TestReadinessEndpoints_AreAtMost16(t *testing.T) {
	t.Parallel()
	list := strings.Repeat("https://a.example.com/x,", 16)
	if s := parse(t, "httpProxy", "http://proxy:1", "readinessEndpoints", list); len(s.ReadinessEndpoints) != 16 ||
		strings.Contains(fmt.Sprintf("%v %+v", s, s), "a.example.com") {
		t.Errorf("%d URLs, printed as %v", len(s.ReadinessEndpoints), s)
	}
	longest := strings.Repeat("https://a/"+strings.Repeat("x", 2048-len("https://a/"))+",", 16)
	if s := parse(t, "httpProxy", "http://proxy:1", "readinessEndpoints", longest); len(s.ReadinessEndpoints) != 16 {
		t.Errorf("%d of the longest URLs", len(s.ReadinessEndpoints))
	}
	if _, err := settings.ParseSecret(data("httpProxy", "http://proxy:1", "readinessEndpoints", longest+" ")); err == nil {
		t.Error("a value that is longer than 16 of the longest URLs is read")
	}
	_, err := settings.ParseSecret(data("httpProxy", "http://proxy:1", "readinessEndpoints", list+strings.Repeat("s3cr,", 4000)))
	if found := finding.Of(err); len(found) != 1 || found[0].Message != "more than 16 URLs" || strings.Contains(err.Error(), "s3cr") {
		t.Errorf("got %v", err)
	}
}
