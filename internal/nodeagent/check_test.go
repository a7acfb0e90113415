package nodeagent_test

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/nodeagent"
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

func (p *proxy) url(userinfo string) string {
	return strings.Replace(p.URL, "://", "://"+userinfo+"@", 1)
}

func TestCheck_AsksThroughTheProxy(t *testing.T) {
	t.Parallel()
	const rude = "user:p%40%22%24s"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusFound)
		case "/denied":
			w.WriteHeader(http.StatusUnauthorized)
		case "/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it is told about every CA that is not trusted
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
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
			userinfo := test.userinfo
			if userinfo == "" {
				userinfo = rude
			}
			f.mount(contract.KeyProxyEnv, proxyEnv(t, p.url(userinfo), strings.Fields(test.noProxy)...))
			f.mount(contract.KeyTrustedCABundle, envfile.Header+"\n"+test.ca)
			f.mount(contract.KeyReadiness, test.endpoint+"\n")
			count, err := nodeagent.Check(t.Context(), f.Options)
			if count != 1 || (err == nil) != (test.want == "") {
				t.Fatalf("%d, %v", count, err)
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

func TestCheck_QuotesNothingThatAProxySays(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, "HTTP/1.1 500 \x1b[31mpw "+strings.Repeat("é", 5000)+"\r\n\r\n")
			_ = connection.Close()
		}
	}()
	f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://user:pw@"+listener.Addr().String()))
	f.mount(contract.KeyReadiness, "https://example.com")
	_, err = nodeagent.Check(t.Context(), f.Options)
	if err == nil || len(err.Error()) > 400 || strings.Contains(err.Error(), "pw") ||
		!strings.HasSuffix(err.Error(), "https://example.com: Internal Server Error") {
		t.Errorf("%v", err)
	}
}
