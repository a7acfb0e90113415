package agent_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// proxy is a proxy that wants a password and connects every host to one server.
type proxy struct {
	*httptest.Server
	requests atomic.Int32
}

const password = "p@\"$s"

func newProxy(t *testing.T, to *httptest.Server, status int) *proxy {
	t.Helper()
	p := &proxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
		if _, got, found := r.BasicAuth(); !found || got != password {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		if r.Method != http.MethodConnect || status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		tunnel(r.Context(), t, w, to)
	}))
	t.Cleanup(p.Close)
	return p
}

func tunnel(ctx context.Context, t *testing.T, w http.ResponseWriter, to *httptest.Server) {
	t.Helper()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", to.Listener.Addr().String())
	if err != nil {
		t.Error(err)
		return
	}
	client, read, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(server, read); _ = server.Close() }()
	go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
}

// newTLSServer returns a server with a certificate that nobody trusts, in PEM.
func newTLSServer(t *testing.T, handler http.Handler) (server *httptest.Server, ca string) {
	t.Helper()
	server = httptest.NewTLSServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it is told about every CA that is not trusted
	t.Cleanup(server.Close)
	return server, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

func (p *proxy) url(userinfo string) string {
	return strings.Replace(p.URL, "://", "://"+userinfo+"@", 1)
}

func TestCheck_AsksThroughTheProxy(t *testing.T) {
	t.Parallel()
	const rude = "user:p%40%22%24s"
	server, ca := newTLSServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusFound)
		case "/denied":
			w.WriteHeader(http.StatusUnauthorized)
		case "/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	direct := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(direct.Close)
	for name, test := range map[string]struct {
		endpoint, userinfo, ca string
		status                 int // of the proxy
		noProxy                string
		want                   string // in the error
		unused                 bool   // the proxy is not asked
	}{
		"a tunnel":                  {endpoint: "https://example.com/", ca: ca},
		"a redirect":                {endpoint: "https://example.com/redirect", ca: ca},
		"an answer of 401":          {endpoint: "https://example.com/denied", ca: ca},
		"an answer of 503":          {endpoint: "https://example.com/broken", ca: ca, want: "https://example.com: status 503"},
		"another CA":                {endpoint: "https://example.com/", want: "certificate"},
		"a wrong password":          {endpoint: "https://example.com/", ca: ca, userinfo: "user:wr0ng%20pass", want: "https://example.com: Proxy Authentication Required"},
		"a wrong password for http": {endpoint: "http://example.com/", userinfo: "user:wr0ng%20pass", want: "http://example.com: status 407"},
		"a proxy without a way":     {endpoint: "https://example.com/", ca: ca, status: http.StatusBadGateway, want: "Bad Gateway"},
		"http by the proxy":         {endpoint: "http://example.com/?token=t0ken", status: http.StatusNotFound},
		"http, 504 of the proxy":    {endpoint: "http://example.com/?token=t0ken", status: http.StatusGatewayTimeout, want: "http://example.com: status 504"},
		"NO_PROXY":                  {endpoint: direct.URL, noProxy: "127.0.0.1", unused: true},
		"a user in the endpoint":    {endpoint: "https://name:t0ken@example.com/broken", ca: ca, want: "https://example.com: status 503"},
		"no URL":                    {endpoint: "ftp://user:t0ken@host", want: "ftp://host: not a URL of http or https", unused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, server, max(test.status, http.StatusOK))
			f := newFolders(t)
			f.mount(contract.KeyProxyEnv, proxyEnv(t, p.url(cmp.Or(test.userinfo, rude)), strings.Fields(test.noProxy)...))
			f.mount(contract.KeyTrustedCABundle, systemd.EnvironmentFileHeader+"\n"+test.ca)
			f.mount(contract.KeyReadiness, test.endpoint+"\n")
			var out strings.Builder
			err := agent.Check(t.Context(), f.Options, &out)
			if (out.String() == "1 readiness endpoints answer\n") != (err == nil) || (err == nil) != (test.want == "") {
				t.Fatalf("%q, %v", out.String(), err)
			}
			if err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			for _, hidden := range []string{"p%40", password, "user:", "wr0ng", "t0ken"} {
				if err != nil && strings.Contains(err.Error(), hidden) {
					t.Errorf("%q is in the error: %v", hidden, err)
				}
			}
			if used := p.requests.Load() > 0; used == test.unused {
				t.Errorf("the proxy is asked: %t", used)
			}
		})
	}
}

// A bundle of the node is a file, or a link to one, as on Flatcar and Fedora, even through a folder that is a link.
func TestCheck_TrustsWhatTheNodeTrusts(t *testing.T) {
	t.Parallel()
	server, ca := newTLSServer(t, http.NotFoundHandler())
	const bundle, there = "/etc/ssl/certs/ca-certificates.crt", "/usr/share/ca-certificates/ca-certificates.crt"
	for name, test := range map[string]struct {
		links   map[string]string
		trusted bool
	}{
		"a relative link":               {map[string]string{bundle: "../../../usr/share/ca-certificates/ca-certificates.crt"}, true},
		"an absolute link":              {map[string]string{bundle: there}, true},
		"a link above the root":         {map[string]string{bundle: "../../../../../../.." + there}, true},
		"a link to a link":              {map[string]string{bundle: "/etc/ssl/cert.pem", "/etc/ssl/cert.pem": "../.." + there}, true},
		"a folder that is a link":       {map[string]string{"/etc/ssl/certs": "/usr/share/ca-certificates/"}, true},
		"the other name of the bundle":  {map[string]string{"/etc/pki/tls/certs": "../../../usr/share/x", "/usr/share/x/ca-bundle.crt": there}, true},
		"a link to nothing":             {map[string]string{bundle: "nothing"}, false},
		"a link to itself":              {map[string]string{bundle: "ca-certificates.crt"}, false},
		"a link to a folder":            {map[string]string{bundle: "/usr/share"}, false},
		"a link to a bundle of another": {map[string]string{bundle: "OUTSIDE"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolders(t)
			f.put(there, ca, 0o644)
			outside := filepath.Join(t.TempDir(), "bundle")
			must(t, os.WriteFile(outside, []byte(ca), 0o600))
			for at, to := range test.links {
				f.link(at, strings.Replace(to, "OUTSIDE", outside, 1))
			}
			f.mount(contract.KeyReadiness, server.URL)
			f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://127.0.0.1:1", "127.0.0.1"))
			err := agent.Check(t.Context(), f.Options, io.Discard)
			if (err == nil) != test.trusted {
				t.Errorf("trusted: %t, %v", test.trusted, err)
			}
			if err != nil && !strings.HasSuffix(err.Error(), ": certificate signed by unknown authority") {
				t.Errorf("%v", err)
			}
		})
	}
}

// A proxy repeats what it got: the header with the credentials, in every place of an answer.
func TestCheck_QuotesNothingThatAProxySays(t *testing.T) {
	t.Parallel()
	const user, pass = "user", "pa$$w0rd"
	encoded := base64.StdEncoding.EncodeToString([]byte(user + ":" + pass))
	hidden := []string{encoded, encoded[:8], user, pass, hex.EncodeToString([]byte(pass)), "é", "\x1b"}
	for name, test := range map[string]struct{ answer, want string }{
		"a reason":                {"HTTP/1.1 500 \x1b[31mECHO " + strings.Repeat("é", 5000) + "\r\n\r\n", "Internal Server Error"},
		"a status of its own":     {"HTTP/1.1 799 ECHO\r\n\r\n", "status 799"},
		"the request":             {"Proxy-Authorization: Basic ECHO\r\n\r\n", "the answer is not HTTP"},
		"a header without a name": {"HTTP/1.1 200 OK\r\nECHO\r\n\r\n", "the answer is not HTTP"},
		"a coding":                {"HTTP/1.1 200 OK\r\nTransfer-Encoding: ECHO\r\n\r\n", "the answer is not HTTP"},
		"many headers":            {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("ECHO", 30_000) + "\r\n\r\n", ""},
		"nothing":                 {"", "the connection was closed without an answer"},
		"half an answer":          {"HTTP/1.1 200 ECHO", "the connection was closed without an answer"},
	} {
		for _, endpoint := range []string{"http://example.com", "https://example.com"} {
			t.Run(name+" to "+endpoint, func(t *testing.T) {
				t.Parallel()
				f := newFolders(t)
				address := answering(t, strings.ReplaceAll(test.answer, "ECHO", encoded+" "+pass+" "+hex.EncodeToString([]byte(pass))))
				f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://"+user+":"+url.QueryEscape(pass)+"@"+address))
				f.mount(contract.KeyReadiness, endpoint)
				err := agent.Check(t.Context(), f.Options, io.Discard)
				want := test.want
				if endpoint == "http://example.com" {
					want = strings.NewReplacer("Internal Server Error", "status 500").Replace(want)
				}
				if err == nil || want != "" && !strings.HasSuffix(err.Error(), endpoint+": "+want) {
					t.Errorf("%v, want %s", err, want)
				}
				for _, text := range hidden {
					if err != nil && strings.Contains(err.Error(), text) {
						t.Errorf("%q is in the error: %v", text, err)
					}
				}
			})
		}
	}
}

// answering returns the address of a server that reads a request and answers each with one text.
func answering(t *testing.T, text string) string {
	t.Helper()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(connection))
			_, _ = io.WriteString(connection, text)
			_ = connection.Close()
		}
	}()
	return listener.Addr().String()
}

// A proxy that reads what is encrypted shows a certificate of its own, and may write into it what it likes.
func TestCheck_QuotesNothingOfACertificate(t *testing.T) {
	t.Parallel()
	const pass = "pa$$w0rd"
	encoded := base64.StdEncoding.EncodeToString([]byte("user:" + pass))
	now := time.Now() //nolint:forbidigo // certificates are checked by the clock
	for name, test := range map[string]struct {
		change func(*x509.Certificate)
		signed bool
		want   string
	}{
		"nobody trusts": {func(*x509.Certificate) {}, false, "certificate signed by unknown authority"},
		"of another":    {func(c *x509.Certificate) { c.DNSNames = []string{encoded + ".example.com", "pa--w0rd"} }, true, "certificate is not for this host"},
		"expired":       {func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) }, true, "certificate has expired or is not yet valid"},
		"for clients":   {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, true, "certificate is not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certificate := pki.Make(t, encoded, func(c *x509.Certificate) {
				c.Subject.Organization, c.DNSNames = []string{pass}, []string{"example.com"}
				c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(2*time.Hour)
				test.change(c)
			})
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate.TLS()}, MinVersion: tls.VersionTLS12}
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			p, f := newProxy(t, server, http.StatusOK), newFolders(t)
			f.mount(contract.KeyProxyEnv, proxyEnv(t, p.url("user:p%40%22%24s")))
			if test.signed {
				f.mount(contract.KeyTrustedCABundle, systemd.EnvironmentFileHeader+"\n"+string(certificate.PEM))
			}
			f.mount(contract.KeyReadiness, "https://example.com")
			err := agent.Check(t.Context(), f.Options, io.Discard)
			if err == nil || !strings.HasSuffix(err.Error(), ": https://example.com: "+test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

func TestCheck_SaysWhyNothingAnswers(t *testing.T) {
	t.Parallel()
	gone := freeAddress(t)
	for name, test := range map[string]struct{ proxy, endpoint, want string }{
		"nobody listens":           {"http://user:pw@" + gone, "https://example.com", "https://example.com: proxyconnect tcp: dial tcp " + gone + ": connect: connection refused"},
		"no such proxy":            {"http://user:pw@proxy.invalid:1", "https://example.com", "lookup proxy.invalid"},
		"a proxy without TLS":      {"https://user:pw@" + answering(t, "HTTP/1.1 200 OK\r\n\r\n"), "https://example.com", "https://example.com: the answer is not TLS"},
		"an endpoint without TLS":  {"http://user:pw@" + gone, "https://" + answering(t, "HTTP/1.1 200 OK\r\n\r\n"), "the answer is not TLS"},
		"a proxy that is no URL":   {"http://user:pw@pro xy", "https://nothing.invalid", "no such host"},
		"an endpoint with escapes": {"http://user:pw@" + gone, "https://user:pw@exa%mple.com", "an endpoint: not a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolders(t)
			f.mount(contract.KeyProxyEnv, proxyEnv(t, test.proxy, "127.0.0.1"))
			f.mount(contract.KeyReadiness, test.endpoint)
			err := agent.Check(t.Context(), f.Options, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "pw") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

// TestCheck_NamesTheFileThatWins has a node without systemd, whose unit files are read.
func TestCheck_NamesTheFileThatWins(t *testing.T) {
	t.Parallel()
	const (
		folder = "/etc/systemd/system/containerd.service.d/"
		prefix = "containerd has other values than those of the proxy Secret: "
		good   = "0 readiness endpoints answer\nsystemd gives the variables of /etc/capi-proxy-patcher/proxy.env to containerd\n"
	)
	for name, test := range map[string]struct {
		files map[string]string
		want  string // the error
	}{
		"nothing else": {},
		"a file that is read later": {
			map[string]string{folder + "zz.conf": "[Service]\nEnvironmentFile=/etc/theirs.env\n", "/etc/theirs.env": "HTTP_PROXY=http://u:s3cr@other\n"},
			prefix + "HTTP_PROXY from /etc/theirs.env, which " + folder + "zz.conf reads",
		},
		"the same values": {
			map[string]string{folder + "zz.conf": "[Service]\nEnvironmentFile=/etc/theirs.env\n", "/etc/theirs.env": "HTTP_PROXY='http://u:old@proxy:3128'\n"}, "",
		},
		"variables taken away": {
			map[string]string{folder + "zz.conf": "[Service]\nUnsetEnvironment=HTTP_PROXY HTTPS_PROXY\n"},
			prefix + "HTTP_PROXY, HTTPS_PROXY unset by " + folder + "zz.conf",
		},
		"files forgotten": {
			map[string]string{folder + "zz.conf": "[Service]\nEnvironmentFile=\n"},
			prefix + "HTTP_PROXY, HTTPS_PROXY, NO_PROXY not read from /etc/capi-proxy-patcher/proxy.env, because " + folder + "zz.conf resets EnvironmentFile=",
		},
		"a drop-in that hides ours": {
			map[string]string{"/etc/systemd/system.control/containerd.service.d/http-proxy.conf": "[Service]\n"},
			prefix + "HTTP_PROXY, HTTPS_PROXY, NO_PROXY not read from /etc/capi-proxy-patcher/proxy.env",
		},
		"another service":       {map[string]string{"/etc/systemd/system/other.service.d/zz.conf": "[Service]\nUnsetEnvironment=HTTP_PROXY\n"}, ""},
		"a drop-in before ours": {map[string]string{folder + "10-a.conf": "[Service]\nEnvironmentFile=\n"}, ""},
		"own addresses": {
			map[string]string{"/etc/capi-proxy-patcher/node.env": systemd.EnvironmentFileHeader + "\nNO_PROXY=\"own,a\"\n"}, "",
		},
		"own addresses of another version": {
			map[string]string{"/etc/capi-proxy-patcher/node.env": systemd.EnvironmentFileHeader + "\nNO_PROXY=\"own,ba\"\n"},
			prefix + "NO_PROXY from /etc/capi-proxy-patcher/node.env, which " + folder + "http-proxy.conf reads",
		},
		"the file of own addresses, changed by hand": {
			map[string]string{"/etc/capi-proxy-patcher/node.env": systemd.EnvironmentFileHeader + "\nHTTP_PROXY=\"mine\"\n"},
			prefix + "HTTP_PROXY from /etc/capi-proxy-patcher/node.env, which " + folder + "http-proxy.conf reads",
		},
		"a node that could not be prepared": {
			map[string]string{contract.PathProblems: "capi-proxy-patcher: containerd did not restart: see journalctl -u containerd\n"},
			"when the node was prepared: containerd did not restart: see journalctl -u containerd",
		},
		"a file without the variable": {
			map[string]string{"/etc/capi-proxy-patcher/proxy.env": systemd.EnvironmentFileHeader + "\nHTTP_PROXY=\"x\"\n"},
			prefix + "HTTPS_PROXY, NO_PROXY not in /etc/capi-proxy-patcher/proxy.env",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolders(t)
			f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://u:old@proxy:3128", "a"))
			f.put(contract.PathProxyEnv, proxyEnv(t, "http://u:old@proxy:3128", "a"), 0o600)
			f.put(folder+"http-proxy.conf", systemd.EnvironmentFileHeader+"\n[Service]\nEnvironmentFile=/etc/capi-proxy-patcher/proxy.env\n"+
				"EnvironmentFile=-/etc/capi-proxy-patcher/node.env\n", 0o644)
			f.put("/usr/lib/systemd/system/containerd.service", "[Service]\nEnvironmentFile=-/etc/default/none\n", 0o644)
			for path, content := range test.files {
				f.put(path, content, 0o600)
			}
			var out strings.Builder
			err := agent.Check(t.Context(), f.Options, &out)
			switch {
			case test.want == "" && (err != nil || out.String() != good):
				t.Errorf("%v, %s", err, out.String())
			case test.want != "" && (err == nil || err.Error() != test.want):
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// What links to a file is followed, as systemd does.
func TestCheck_ReadsUnitFilesThroughLinks(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	f.put("/etc/systemd/system/kubelet.service.d/http-proxy.conf", systemd.EnvironmentFileHeader+"\n[Service]\nEnvironmentFile=/etc/capi-proxy-patcher/proxy.env\n", 0o644)
	f.put("/opt/theirs.conf", "[Service]\nUnsetEnvironment=HTTP_PROXY\n", 0o644)
	f.link("/etc/systemd/system/kubelet.service.d/zz.conf", "/opt/theirs.conf")
	err := agent.Check(t.Context(), f.Options, io.Discard)
	if err == nil || !strings.HasSuffix(err.Error(), "HTTP_PROXY unset by /etc/systemd/system/kubelet.service.d/zz.conf") {
		t.Error(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := ports.Address(t.Context())
	must(t, err)
	return address
}
