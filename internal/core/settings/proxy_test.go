package settings_test

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

func data(pairs ...string) map[string][]byte {
	m := map[string][]byte{}
	for pair := range slices.Chunk(pairs, 2) {
		m[pair[0]] = []byte(pair[1])
	}
	return m
}

func parse(t *testing.T, pairs ...string) settings.Proxy {
	t.Helper()
	s, err := settings.ParseSecret(data(pairs...))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return s
}

func TestParse_AcceptsWhatClientsAgreeOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in   string
		want string
	}{
		"host and port":                  {"http://proxy.example.com:3128", "http://proxy.example.com:3128"},
		"no port":                        {"http://asdf", "http://asdf"},
		"an https proxy":                 {"https://asdf2:443", "https://asdf2:443"},
		"upper case":                     {"HTTP://Proxy.Example.COM:3128", "http://proxy.example.com:3128"},
		"a lone slash is the empty path": {"http://myproxy.server.com:8080/", "http://myproxy.server.com:8080"},
		"blanks and a line end around":   {"  http://proxy:1\r\n", "http://proxy:1"},
		"an IPv4 address":                {"http://192.168.52.220:3128", "http://192.168.52.220:3128"},
		"an IPv6 address":                {"http://[2001:DB8:0:0::1]:3128", "http://[2001:db8::1]:3128"},
		"an internationalized name":      {"http://Bücher.example:80", "http://xn--bcher-kva.example:80"},
		"a label of 63 characters":       {"http://" + strings.Repeat("a", 63) + ".example:80", "http://" + strings.Repeat("a", 63) + ".example:80"},
		"an underscore":                  {"http://proxy_1.example.com:80", "http://proxy_1.example.com:80"},
		"an absolute name":               {"http://proxy.example.com.:80", "http://proxy.example.com:80"},
		"a user":                         {"http://user@proxy:1", "http://user@proxy:1"},
		"a percent-encoded password":     {"http://user:p%40ss%2F%23@proxy:1", "http://user:p%40ss%2F%23@proxy:1"},
		"the ends of each kind of digit": {"http://user:%09%90%af%AF@proxy:1", "http://user:%09%90%af%AF@proxy:1"},
		"sub-delimiters in the password": {"http://user:!$&'()*+,;=:x@proxy:1", "http://user:!$&'()*+,;=:x@proxy:1"},
		"a leading zero in the port":     {"http://proxy:0080", "http://proxy:80"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, "httpProxy", test.in)
			if got := s.HTTPProxy.Reveal(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if s.HTTPSProxy != s.HTTPProxy {
				t.Error("httpProxy does not serve https")
			}
			if _, err := url.Parse(test.want); err != nil {
				t.Errorf("Go cannot parse it: %v", err)
			}
		})
	}
}

// TestParse_Refuses has the data of a Secret and the parts of its error, in their order.
func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	const encode = "; percent-encode it in the URL, or put the unencoded user and password into the keys username and password"
	ca := certificate(t, func(*x509.Certificate) {})
	for name, test := range map[string]struct {
		data map[string][]byte
		want []string
	}{
		"nothing":                      {data(), []string{"keys httpProxy and httpsProxy: no proxy URL (no-proxy-url); set httpProxy, for example to http://proxy.example.com:3128"}},
		"only blanks":                  {data("httpProxy", " \n"), []string{"no proxy URL"}},
		"no scheme":                    {data("httpProxy", "proxy:3128"), []string{"key httpProxy: the scheme is missing (bad-proxy-url); write http:// or https:// in front"}},
		"no scheme but userinfo":       {data("httpProxy", "u:s3cr@proxy:3128"), []string{"the scheme is missing"}},
		"a scheme of another protocol": {data("httpProxy", "socks5://proxy:1"), []string{"key httpProxy: a SOCKS proxy (bad-proxy-url); name an HTTP proxy (docs/scope.md#socks-and-ntlm-proxies)"}},
		"an unknown scheme":            {data("httpProxy", "ftp://proxy:1"), []string{"the scheme is unknown"}},
		"a scheme inside":              {data("httpProxy", "proxy/http://s3cr"), []string{"the scheme is missing"}},
		"a path":                       {data("httpProxy", "http://proxy:1/s3cr"), []string{"a path, query or fragment (bad-proxy-url); write the proxy's own host and port alone, not the address of a file"}},
		"a query":                      {data("httpProxy", "http://proxy:1?s3cr"), []string{"a path, query or fragment"}},
		"a fragment":                   {data("httpProxy", "http://proxy:1#s3cr"), []string{"a path, query or fragment"}},
		"two slashes":                  {data("httpProxy", "http://proxy:1//"), []string{"a path, query or fragment"}},
		"a raw slash in the password":  {data("httpProxy", "http://u:s3cr/x@proxy:1"), []string{"unescaped /, ? or # in user or password (bad-proxy-url)" + encode}},
		"a raw hash in the password":   {data("httpProxy", "http://u:s3cr#x@proxy:1"), []string{"unescaped /, ? or # in user or password"}},
		"a raw question mark":          {data("httpProxy", "http://u:s3cr?x@proxy:1"), []string{"unescaped /, ? or # in user or password"}},
		"a raw percent sign":           {data("httpProxy", "http://u:s3cr%zz@proxy:1"), []string{"a raw % in the user or password"}},
		"a percent sign at the end":    {data("httpProxy", "http://u:s3cr%4@proxy:1"), []string{"a raw % in the user or password"}},
		"a raw blank":                  {data("httpProxy", "http://u:s3 cr@proxy:1"), []string{"a raw space in the user or password"}},
		"a raw at sign":                {data("httpProxy", "http://u:s3@cr@proxy:1"), []string{"a raw @ in the user or password"}},
		"a quote in the password":      {data("httpProxy", `http://u:s3"cr@proxy:1`), []string{"a raw character in the user or password that a URL cannot hold"}},
		"a brace in the password":      {data("httpProxy", "http://u:{{s3cr@proxy:1"), []string{"a raw character"}},
		"a letter beyond ASCII":        {data("httpProxy", "http://u:s3cré@proxy:1"), []string{"a raw character"}},
		"a line end inside":            {data("httpProxy", "http://u:s3\ncr@proxy:1"), []string{"a control character"}},
		"an empty userinfo":            {data("httpProxy", "http://@proxy:1"), []string{"an empty user and password before the @"}},
		"no host":                      {data("httpProxy", "http://:3128"), []string{"the host is missing"}},
		"no host after the user":       {data("httpProxy", "http://u:s3cr@"), []string{"the host is missing"}},
		"a blank in the host":          {data("httpProxy", "http://pro xy:1"), []string{"a host that is not a DNS name"}},
		"a host that is no address":    {data("httpProxy", "http://10.0.0.300:1"), []string{"an IPv4 address that cannot be parsed"}},
		"IPv6 without brackets":        {data("httpProxy", "http://fd00::1:3128"), []string{"an IPv6 address without brackets"}},
		"IPv6 with a zone":             {data("httpProxy", "http://[fe80::1%25eth0]:3128"), []string{"an IPv6 address that cannot be parsed"}},
		"half a bracket":               {data("httpProxy", "http://[fd00::1:3128"), []string{"an IPv6 address without its closing bracket"}},
		"text after the bracket":       {data("httpProxy", "http://[fd00::1]x:3128"), []string{"text between the IPv6 address and the port"}},
		"port zero":                    {data("httpProxy", "http://proxy:0"), []string{"a port that is not a number from 1 to 65535"}},
		"a label too long":             {data("httpProxy", "http://"+strings.Repeat("a", 64)+".example:1"), []string{"a host that is not a DNS name"}},
		"userinfo and username":        {data("httpProxy", "http://u:s3cr@proxy:1", "username", "u"), []string{"key httpProxy: the URL has userinfo and the key username is given too (bad-credentials)"}},
		"a password alone":             {data("httpProxy", "http://proxy:1", "password", "s3cr"), []string{"key password: a password without a username (bad-credentials); add the key username"}},
		"a colon in the user":          {data("httpProxy", "http://proxy:1", "username", "u:s3cr"), []string{"key username: a user name cannot contain a colon"}},
		"a line end in the password":   {data("httpProxy", "http://proxy:1", "username", "u", "password", "s3\ncr"), []string{"key password: a control character"}},
		"an unknown key, nearly known": {data("httpProxy", "http://proxy:1", "trustedCa", "s3cr"), []string{`key "trustedCa": unknown key (unknown-key); did you mean trustedCA?`}},
		"the name of the variable":     {data("HTTP_PROXY", "http://proxy:1"), []string{`key "HTTP_PROXY": unknown key (unknown-key); did you mean httpProxy?`, "no proxy URL"}},
		"an unknown key, far from any": {data("httpProxy", "http://proxy:1", "color", "s3cr"), []string{`key "color": unknown key (unknown-key); the keys are httpProxy, httpsProxy, noProxy, trustedCA, username, password`}},
		"several findings, in one order": {
			data("zzzzzzzz", "", "aaaaaaaa", "", "httpProxy", "x", "httpsProxy", "y", "password", "s3cr"),
			[]string{`key "aaaaaaaa"`, `key "zzzzzzzz"`, "key httpProxy", "key httpsProxy", "key password"},
		},
		"an empty trustedCA":            {data("httpProxy", "http://proxy:1", "trustedCA", " \n"), []string{"key trustedCA: no certificate (bad-ca); put PEM certificates here or remove the key"}},
		"trustedCA not PEM":             {data("httpProxy", "http://proxy:1", "trustedCA", "\x30\x82s3cr"), []string{"key trustedCA: not PEM"}},
		"trustedCA encoded":             {data("httpProxy", "http://proxy:1", "trustedCA", base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\n"))), []string{"base64 of PEM instead of PEM (bad-ca); move the value from stringData to data, or decode it"}},
		"a private key":                 {data("httpProxy", "http://proxy:1", "trustedCA", block("EC PRIVATE KEY", "s3cr")), []string{"block 1 is a private key"}},
		"a public key":                  {data("httpProxy", "http://proxy:1", "trustedCA", block("PUBLIC KEY", "s3cr")), []string{"block 1 is not a certificate"}},
		"a broken certificate":          {data("httpProxy", "http://proxy:1", "trustedCA", block("CERTIFICATE", "s3cr")), []string{"block 1 does not hold a certificate that can be parsed"}},
		"a list and certificates":       {data("trustedCA", ca, "noProxy", "a"), []string{"no proxy URL (no-proxy-url); set httpProxy, for example to http://proxy.example.com:3128, or remove noProxy if nodes only have to trust the certificates of trustedCA"}},
		"credentials and certificates":  {data("trustedCA", ca, "username", "u", "password", "s3cr"), []string{", or remove username and password if nodes"}},
		"an empty trustedCA and no URL": {data("trustedCA", ""), []string{"key trustedCA: no certificate"}},
		"a list alone":                  {data("noProxy", "a"), []string{"no proxy URL (no-proxy-url); set httpProxy, for example to http://proxy.example.com:3128"}},
		"a cut certificate":             {data("httpProxy", "http://proxy:1", "trustedCA", "-----BEGIN CERTIFICATE-----\nMIIB\n"), []string{"block 1 is cut or damaged PEM"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first string
			for i := range 2 {
				s, err := settings.ParseSecret(test.data)
				if err == nil {
					t.Fatal("no error")
				}
				if s.HTTPProxy.IsSet() || s.HTTPSProxy.IsSet() {
					t.Error("settings beside an error")
				}
				rest := err.Error()
				for _, part := range test.want {
					_, after, found := strings.Cut(rest, part)
					if !found {
						t.Errorf("error %q lacks %q, or has it out of order", err, part)
					}
					rest = after
				}
				if strings.Contains(err.Error(), "s3") {
					t.Errorf("error %q holds a value", err)
				}
				if i == 1 && first != err.Error() {
					t.Errorf("error changed from %q to %q", first, err)
				}
				first = err.Error()
			}
		})
	}
}

func TestParse_NamesNoKeyOfAnotherSecret(t *testing.T) {
	t.Parallel()
	const want = "keys: not a proxy Secret (not-a-proxy-secret); name another one, or give it one of the keys httpProxy, httpsProxy, noProxy and trustedCA"
	for _, keys := range [][]string{
		{"tls.key", "tls.crt"},
		{"admin-t0ken"},
		{"username", "password"},
		{"username", "password", "db-h0st"},
		{"proxy"},
		{"httpProxyy"},
	} {
		values := map[string][]byte{}
		for _, key := range keys {
			values[key] = []byte("s3cr")
		}
		if _, err := settings.ParseSecret(values); err == nil || err.Error() != want {
			t.Errorf("%v: %v", keys, err)
		}
	}
	for _, key := range []string{"httpProxy", "httpsProxy", "noProxy", "trustedCA", "HTTP_PROXY", "trusted-ca"} {
		_, err := settings.ParseSecret(data(key, "s3cr", "color", ""))
		if err == nil || !strings.Contains(err.Error(), `key "color": unknown key`) {
			t.Errorf("beside %s: %v", key, err)
		}
	}
}

func TestParse_EncodesUserAndPasswordIntoTheURLs(t *testing.T) {
	t.Parallel()
	const user, password = `DOM\us er`, "p%4@:/\"'$`\\ {{x}}{%#?&é\U0001F511"
	s := parse(t, "httpProxy", "http://proxy:1", "httpsProxy", "https://secure:2", "username", user+"\n", "password",
		password+"\r\n")
	for _, u := range []settings.URL{s.HTTPProxy, s.HTTPSProxy} {
		parsed, err := url.Parse(u.Reveal())
		if err != nil {
			t.Fatalf("Go cannot parse it: %v", err)
		}
		if got, _ := parsed.User.Password(); got != password || parsed.User.Username() != user {
			t.Errorf("Go decodes user %q and password %q", parsed.User.Username(), got)
		}
	}
	if s := parse(t, "httpProxy", "http://proxy:1", "username", "only"); s.HTTPProxy.Reveal() != "http://only@proxy:1" {
		t.Errorf("a user without a password gives %s", s.HTTPProxy.Reveal())
	}
}

func TestVars_AreBothSpellingsOfWhatIsSet(t *testing.T) {
	t.Parallel()
	both := func(name, value string) []systemd.Var {
		return []systemd.Var{{Name: strings.ToUpper(name), Value: value}, {Name: strings.ToLower(name), Value: value}}
	}
	for name, test := range map[string]struct {
		settings settings.Proxy
		noProxy  string
		want     [][]systemd.Var
	}{
		"one proxy for both": {parse(t, "httpProxy", "http://a:1"), "x", [][]systemd.Var{both("http_proxy", "http://a:1"), both("https_proxy", "http://a:1"), both("no_proxy", "x")}},
		"two proxies":        {parse(t, "httpProxy", "http://a:1", "httpsProxy", "http://b:2"), "x", [][]systemd.Var{both("http_proxy", "http://a:1"), both("https_proxy", "http://b:2"), both("no_proxy", "x")}},
		"https only":         {parse(t, "httpsProxy", "http://b:2"), "", [][]systemd.Var{both("https_proxy", "http://b:2")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []systemd.Var
			for _, pair := range test.want {
				want = append(want, pair...)
			}
			if diff := cmp.Diff(want, test.settings.Vars(test.noProxy)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettings_PrintNoUserinfo(t *testing.T) {
	t.Parallel()
	const secret = "s3cr"
	for name, values := range map[string][]string{
		"user and password":       {"httpProxy", "http://user:s3cr@proxy:1"},
		"a token alone":           {"httpProxy", "http://s3cr@proxy:1"},
		"a token and a colon":     {"httpProxy", "http://s3cr:@proxy:1"},
		"a token as the password": {"httpProxy", "http://:s3cr@proxy:1"},
		"a percent-encoded token": {"httpProxy", "http://s3cr%40%3A@proxy:1"},
		"keys":                    {"httpProxy", "http://proxy:1", "username", "s3cr@", "password", "s3cr"},
		"key username alone":      {"httpProxy", "http://proxy:1", "username", "s3cr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, append(values, "noProxy", "internal.example.com")...)
			if !strings.Contains(s.HTTPProxy.Reveal(), secret) {
				t.Fatalf("Reveal is %s", s.HTTPProxy.Reveal())
			}
			encoded, err := json.Marshal(map[string]any{"settings": s, "url": s.HTTPProxy})
			if err != nil {
				t.Fatal(err)
			}
			texts := []string{
				string(encoded), fmt.Sprint(s.MarshalLog()), s.HTTPProxy.String(), fmt.Sprint(s.Redacted()),
				s.Redacted().HTTPProxy.Reveal(),
			}
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				texts = append(texts, fmt.Sprintf(verb, s), fmt.Sprintf(verb, &s), fmt.Sprintf(verb, s.HTTPProxy),
					fmt.Sprintf(verb, []any{s}), fmt.Sprintf(verb, struct{ S settings.Proxy }{s}))
			}
			for _, text := range texts {
				if strings.Contains(text, secret) || strings.Contains(text, "user") ||
					strings.Contains(text, fmt.Sprintf("%x", secret)) {
					t.Errorf("%q holds userinfo", text)
				}
			}
			if got := s.HTTPProxy.String(); got != "http://xxxxx@proxy:1" {
				t.Errorf("String is %q", got)
			}
		})
	}
}

func TestParse_Warns(t *testing.T) {
	t.Parallel()
	s := parse(t, "httpProxy", "http://127.0.0.1:3128", "httpsProxy", "http://proxy.example.com")
	var got []string
	for _, warning := range s.Warnings {
		got = append(got, warning.Place.String()+" "+string(warning.Code))
	}
	if diff := cmp.Diff([]string{"key httpProxy loopback-proxy", "key httpsProxy proxy-port"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, loopback := range []string{
		"http://localhost:1", "http://[::1]:1", "http://127.9.9.9:1",
		"http://[::ffff:127.0.0.1]:1", "http://x.localhost:1",
	} {
		if s := parse(t, "httpProxy", loopback); len(s.Warnings) != 1 || s.Warnings[0].Code != noproxy.CodeLoopbackProxy {
			t.Errorf("%s gives warnings %v", loopback, s.Warnings)
		}
	}
}

func block(kind, content string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)}))
}

// certificate makes a certificate; edit changes its template.
func certificate(t *testing.T, edit func(*x509.Certificate)) string {
	t.Helper()
	return string(pki.Make(t, "test", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		edit(c)
	}).PEM)
}

func TestParse_TakesCertificatesWithoutAProxy(t *testing.T) {
	t.Parallel()
	ca := certificate(t, func(*x509.Certificate) {})
	for name, test := range map[string]struct {
		settings           settings.Proxy
		trustOnly, proxied bool
	}{
		"certificates alone": {parse(t, "trustedCA", ca), true, false},
		"with empty keys":    {parse(t, "trustedCA", ca, "httpProxy", " ", "httpsProxy", "", "noProxy", "\n", "username", "", "password", "\n"), true, false},
		"with a URL":         {parse(t, "trustedCA", ca, "httpsProxy", "http://p:1"), false, true},
		"the zero value":     {},
	} {
		s := test.settings
		if s.IsTrustOnly() != test.trustOnly || (len(s.Vars("localhost")) > 0) != test.proxied {
			t.Errorf("%s: trust only %t, variables %v", name, s.IsTrustOnly(), s.Vars("localhost"))
		}
	}
}

func TestTrustedCA_HasOneBlockForEachCertificate(t *testing.T) {
	t.Parallel()
	one, two := certificate(t, func(*x509.Certificate) {}), certificate(t, func(*x509.Certificate) {})
	bundle := "a comment {{ for Jinja }}\r\n" + strings.ReplaceAll(one, "\n", "\r\n") + "\n# another\n" + two + one +
		strings.TrimSuffix(two, "\n")
	s := parse(t, "httpProxy", "http://proxy:1", "trustedCA", bundle)
	var got bytes.Buffer
	for _, c := range s.TrustedCA {
		got.Write(c.PEM())
	}
	if diff := cmp.Diff(one+two, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if first, again := s.TrustedCA[0].PEM(), s.TrustedCA[0].PEM(); &first[0] != &again[0] {
		t.Error("PEM is encoded again")
	}
}

func TestTrustedCA_Warns(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		edit func(*x509.Certificate)
		want []string
	}{
		"a good one":        {func(*x509.Certificate) {}, nil},
		"expired":           {func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) }, []string{"ca-expired: the certificate expired on 2026-11-20"}},
		"about to expire":   {func(c *x509.Certificate) { c.NotAfter = now.Add(29 * 24 * time.Hour) }, []string{"ca-expiring: the certificate expires on 2026-12-20"}},
		"31 days are fine":  {func(c *x509.Certificate) { c.NotAfter = now.Add(31 * 24 * time.Hour) }, nil},
		"a leaf with a SAN": {func(c *x509.Certificate) { c.IsCA = false; c.DNSNames = []string{"a.example"} }, []string{"ca-not-ca: the certificate is no certificate authority: RHEL and its kin, Amazon and Azure Linux, Arch and SUSE do not trust it, other systems trust it only for itself"}},
		"a leaf without": {func(c *x509.Certificate) { c.IsCA = false }, []string{
			"ca-not-ca: the certificate is no certificate authority: RHEL and its kin, Amazon and Azure Linux, Arch and SUSE do not trust it, other systems trust it only for itself",
			"ca-no-san: the certificate has no subject alternative name, which Go programs refuse",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, "httpProxy", "http://proxy:1", "trustedCA", certificate(t, func(*x509.Certificate) {})+
				certificate(t, test.edit))
			var got []string
			for _, warning := range s.TrustedCAWarnings(now) {
				if warning.Place.String() != "key trustedCA certificate 2" {
					t.Errorf("warning of %s", warning.Place.String())
				}
				got = append(got, string(warning.Code)+": "+warning.Message)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestParse_NamesWhatIsNotAURL holds that advice makes no URL of what is not that of a proxy, and that only such texts
// are named so.
func TestParse_NamesWhatIsNotAURL(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]string{
		"a PAC file, not a proxy": {
			"http://wpad.example.com/proxy.pac", "https://u:p@files.example.com:8443/a/b.pac?v=1", "http://wpad/wpad.dat", "wpad.dat/x",
			"files.example.com/proxy.PAC", "file:///etc/proxy.pac", "proxy.pac", "http://config.example.com/pac", "http://pac.example.com/internet",
			"http://config.example.com/?type=pac", "data:application/x-ns-proxy-autoconfig;base64,AA", "pac+http://a.example.com/corp_pac", "FILE:/etc/x",
		},
		"DIRECT, PROXY or a like word, not a URL": {"PROXY p.example.com:3128", "PROXY a:1; PROXY b:2; DIRECT", "SOCKS5 a:1", "DIRECT; PROXY a:1", "HTTPS a:1", "DIRECT", "direct", "none", "Off", "auto"},
		"quotes inside the value":                 {`"http://p:1"`, `'http://u:p@p:1'`, `http://p:1"`, `\"http://p:1\"`, "“http://p:1”", "`http://p:1`", `"DIRECT"`},
		"a list, where there can be one URL": {
			"http://a:1,http://b:2", "http://a:1, http://b:2", "http://u:p@a:1,http://u:p@b:2", "http://u:p@a:1,u:p@b:2", "a:1,b:2", "http://a.example.com;b.example.com",
			"http://a:1 http://b:2", "http://a:1\nhttp://b:2", "http://a:1|http://b:2", "http://http://a:1",
		},
		"a SOCKS proxy":           {"socks5://p:1080", "socks://u:p@p:1", "SOCKS4A://p:1"},
		"no :// after the scheme": {"http:/p:1", "http//p:1", "https:p:1"},
		"a path, query or fragment (bad-proxy-url); write the proxy's own host and port alone": {"http://p:1/path", "http://p/pack", "http://pacific.example.com:1/x", "http://p:1?a=b"},
		"the scheme is missing": {"p.example.com:3128", "p", "u:pac@p:1", "noproxy"},
		"unescaped /":           {"http://u:p/pac@p:1", "http://u:p/wpad.dat@p:1"},
		"a raw @":               {"http://u:p@ss,w@p:1"},
		"":                      {"http://u:a,b;c@p:1", "http://u:x.pac@p:1/", "http://wpad-proxy.example.com:3128", "http://pac.example.com:3128/", "http://u:%22@p:1", "http://direct:1", "http://none", "http://pac:wpad@p:1"},
	} {
		for _, value := range values {
			_, err := settings.ParseSecret(map[string][]byte{"httpProxy": []byte(value)})
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "key httpProxy: "+want)) {
				t.Errorf("%s: want %q, got %v", value, want, err)
			}
		}
	}
}

// FuzzParse checks that Go reads accepted URLs as meant, and that an error is of a known kind and does not contain the
// password.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"http://u:p%40@proxy:1", "https://[::1]:2/", "proxy", "http://a@b@c", "http://xn--a:1",
		"http://\u00ad:1", "http://1.2.3.4.:1",
	} {
		f.Add(seed, "user", "password")
	}
	f.Add("http://proxy:1", "ü:", "\x00")
	f.Fuzz(func(t *testing.T, text, user, password string) {
		const secret = "s3cr3t" // long enough to be nowhere by chance
		password = secret + password
		s, err := settings.ParseSecret(data("httpProxy", text, "username", user, "password", password))
		if err != nil {
			if len(finding.Of(err)) == 0 || strings.Contains(err.Error(), secret) {
				t.Errorf("error %v of another kind, or with the password", err)
			}
			return
		}
		parsed, err := url.Parse(s.HTTPProxy.Reveal())
		if err != nil {
			t.Fatalf("accepted %q, which Go cannot parse: %v", text, err)
		}
		if parsed.Path != "" || parsed.RawQuery != "" || parsed.Fragment != "" || parsed.Hostname() == "" {
			t.Errorf("accepted %q, which Go reads as %q", text, parsed.Redacted())
		}
		if _, err := systemd.EnvironmentFile(s.Vars("localhost")); err != nil {
			t.Errorf("accepted %q, which no env file holds: %v", text, err)
		}
		again, err := settings.ParseSecret(data("httpProxy", s.HTTPProxy.Reveal()))
		if err != nil || again.HTTPProxy != s.HTTPProxy {
			t.Errorf("accepted %q, but not its own result %q: %v", text, s.HTTPProxy.Reveal(), err)
		}
		want := strings.TrimRight(password, "\r\n")
		if got, _ := parsed.User.Password(); user != "" && strings.TrimRight(user, "\r\n") != "" && got != want {
			t.Errorf("Go decodes the password as %q, want %q", got, want)
		}
	})
}
