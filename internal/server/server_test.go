package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/servingcert"
)

// served is a running server.
type served struct {
	t       *testing.T
	address string
	folder  string
	config  *tls.Config
}

// serve starts a server with one handler.
func serve(t *testing.T, limits Limits, clientCA string, handler http.HandlerFunc) *served {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	s := &served{t: t, address: listener.Addr().String(), folder: t.TempDir()}
	pair := servingcert.Write(t, s.folder)
	s.config = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // who answers is not in question
	if clientCA != "" {
		s.config.Certificates = []tls.Certificate{pair}
	}
	server := New(Options{Host: "127.0.0.1", Port: port, CertDir: s.folder, ClientCAName: clientCA, Limits: limits})
	server.Register("/", handler)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for check := server.StartedChecker(); check(nil) != nil; {
		select {
		case err := <-done:
			t.Fatalf("the server has ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return s
}

func (s *served) dial() (net.Conn, error) {
	c, err := (&tls.Dialer{Config: s.config}).DialContext(s.t.Context(), "tcp", s.address)
	if err == nil {
		s.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// open opens a connection, on which it may send something.
func (s *served) open(text string) net.Conn {
	s.t.Helper()
	c, err := s.dial()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// post sends a request on a connection of its own and returns the status and the answer.
func (s *served) post(body io.Reader) (int, string, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "https://"+s.address+"/x", body)
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.config, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func (s *served) answers(body, want string) {
	s.t.Helper()
	if status, text, err := s.post(strings.NewReader(body)); status != http.StatusOK || text != want || err != nil {
		s.t.Errorf("status %d, %q, %v; want %q", status, text, err, want)
	}
}

// closed waits until the other side has closed a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(usual().Time / 2)) //nolint:forbidigo // a connection ends in real time
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
}

func echo(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(BodyOf(r)) } //nolint:gosec // no browser reads it

func usual() Limits {
	return Limits{Connections: 100, Body: 1 << 20, AtOnce: 2, Worked: 1 << 20, Time: 30 * time.Second}
}

func header(length int) string {
	return fmt.Sprintf("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length)
}

func TestServer_AnswersBodiesOfEverySize(t *testing.T) {
	t.Parallel()
	s := serve(t, usual(), "", echo)
	for _, size := range []int{0, 1, firstBytes - 1, firstBytes, firstBytes + 1, 100_000, 1 << 20} {
		body := strings.Repeat("x", size)
		s.answers(body, body)
		// chunked
		if status, text, err := s.post(io.MultiReader(strings.NewReader(body))); status != http.StatusOK ||
			text != body || err != nil {
			t.Errorf("%d bytes without a length: status %d, %d bytes, %v", size, status, len(text), err)
		}
	}
	large := strings.Repeat("x", 1<<20+1)
	for name, body := range map[string]io.Reader{
		"a length":  strings.NewReader(large),
		"no length": io.MultiReader(strings.NewReader(large)),
	} {
		if status, text, err := s.post(body); status != http.StatusRequestEntityTooLarge ||
			text != "the request has more than 1048576 bytes\n" || err != nil {
			t.Errorf("too large with %s: status %d, %q, %v", name, status, text, err)
		}
	}
}

func TestServer_AnswersOneRequestAfterTheOtherOnAConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, usual(), "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Test", "kept")
		w.WriteHeader(http.StatusTeapot)
		echo(w, r)
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.config, MaxConnsPerHost: 1}}
	t.Cleanup(client.CloseIdleConnections)
	for i := range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+"/x",
			strings.NewReader(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(text) != fmt.Sprint(i) || response.StatusCode != http.StatusTeapot ||
			response.Header.Get("X-Test") != "kept" {
			t.Errorf("%s %q %v", response.Status, text, err)
		}
	}
}

func TestServer_ClosesTheConnectionThatWaitsLongest(t *testing.T) {
	t.Parallel()
	s := serve(t, usual(), "", echo)
	first := s.open(header(1) + "x") // answered, so that it may stay open for long
	if _, err := io.ReadFull(first, make([]byte, len("HTTP/1.1 200 OK"))); err != nil {
		t.Fatal(err)
	}
	for range 2 * usual().Connections {
		s.open("")
	}
	closed(t, first)
	s.answers("honest", "honest")
}

func TestServer_GivesUpEndlessBodies(t *testing.T) {
	t.Parallel()
	limits := usual()
	limits.Body = maxWaiting
	s := serve(t, limits, "", echo)
	first := s.open(header(maxWaiting) + strings.Repeat("x", maxWaiting/2+1))
	second := s.open(header(maxWaiting))
	if _, err := io.WriteString(second, strings.Repeat("x", maxWaiting/2+1)); err != nil {
		t.Fatal(err)
	}
	closed(t, first)
	s.answers("honest", "honest")
}

func TestServer_EndsARequestThatTakesTooLong(t *testing.T) {
	t.Parallel()
	limits := usual()
	limits.Time = 100 * time.Millisecond
	var handled error
	s := serve(t, limits, "", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		handled = r.Context().Err()
	})
	closed(t, s.open(header(10)+"x"))
	_, _, _ = s.post(strings.NewReader("x"))
	if handled == nil {
		t.Error("the handler is not told")
	}
}

func TestServer_AnswersAFewRequestsAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body string
		want int
	}{"small": {"x", 2}, "large": {strings.Repeat("x", 1<<20), 1}} {
		var (
			mutex         sync.Mutex
			running, most int
		)
		entered, leave := make(chan struct{}, 16), make(chan struct{})
		s := serve(t, usual(), "", func(http.ResponseWriter, *http.Request) {
			mutex.Lock()
			running++
			most = max(most, running)
			mutex.Unlock()
			entered <- struct{}{}
			<-leave
			mutex.Lock()
			running--
			mutex.Unlock()
		})
		var wait sync.WaitGroup
		for range 6 {
			wait.Go(func() {
				if status, _, err := s.post(strings.NewReader(test.body)); status != http.StatusOK || err != nil {
					t.Errorf("%s: status %d, %v", name, status, err)
				}
			})
		}
		for range test.want {
			<-entered
		}
		for range 6 {
			leave <- struct{}{}
		}
		wait.Wait()
		if most != test.want {
			t.Errorf("%s: %d at once, want %d", name, most, test.want)
		}
	}
}

func TestServer_ReloadsTheAuthoritiesOfClients(t *testing.T) {
	t.Parallel()
	s := serve(t, usual(), "ca.crt", echo)
	s.answers("x", "x")
	before := s.config.Certificates
	s.config.Certificates = nil
	if status, _, err := s.post(bytes.NewReader(nil)); err == nil {
		t.Errorf("a client without a certificate gets status %d", status)
	}
	s.config.Certificates = []tls.Certificate{servingcert.Write(t, s.folder)}
	s.answers("x", "x")
	s.config.Certificates = before
	if status, _, err := s.post(bytes.NewReader(nil)); err == nil {
		t.Errorf("a client of an earlier authority gets status %d", status)
	}
}

func TestServer_ReportsMistakesAtTheStart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := New(Options{CertDir: folder, Limits: usual()}).Start(t.Context()); err == nil ||
		!strings.HasPrefix(err.Error(), "reading the certificate: ") {
		t.Errorf("no certificate: %v", err)
	}
	servingcert.Write(t, folder)
	if err := New(Options{CertDir: folder, ClientCAName: "absent", Limits: usual()}).Start(t.Context()); err == nil ||
		!strings.HasPrefix(err.Error(), "reading client CA certificates: ") {
		t.Errorf("no authorities: %v", err)
	}
	if err := New(Options{CertDir: folder, ClientCAName: "tls.key", Limits: usual()}).Start(t.Context()); err == nil ||
		!strings.HasSuffix(err.Error(), "tls.key contains no PEM certificate") {
		t.Errorf("authorities that are none: %v", err)
	}
}

func TestServer_KeepsToTLSOptions(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	servingcert.Write(t, folder)
	for from, to := range map[string]string{"tls.crt": "cert.pem", "tls.key": "key.pem"} {
		if err := os.Rename(filepath.Join(folder, from), filepath.Join(folder, to)); err != nil {
			t.Fatal(err)
		}
	}
	const suite = tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	for name, test := range map[string]struct {
		options TLS
		client  *tls.Config
		speaks  bool
	}{
		"the default with TLS 1.2": {TLS{}, &tls.Config{MaxVersion: tls.VersionTLS12}, true},                                //nolint:gosec // a client on purpose
		"the default with TLS 1.1": {TLS{}, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false}, //nolint:gosec // a client on purpose
		"1.3 with 1.2":             {TLS{MinVersion: tls.VersionTLS13}, &tls.Config{MaxVersion: tls.VersionTLS12}, false},   //nolint:gosec // a client on purpose
		"1.3 with 1.3":             {TLS{MinVersion: tls.VersionTLS13}, &tls.Config{}, true},
		"a suite with it": {
			TLS{CipherSuites: []uint16{suite}},
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}, //nolint:gosec // a client on purpose
			true,
		},
		"a suite with another": {
			TLS{CipherSuites: []uint16{suite}},
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}, //nolint:gosec // a client on purpose
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(Options{CertDir: folder, CertName: "cert.pem", KeyName: "key.pem", TLS: test.options, Limits: usual()})
			config, err := s.config(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := net.Pipe()
			go func() { _ = tls.Server(ours, config).HandshakeContext(t.Context()); _ = ours.Close() }()
			test.client.InsecureSkipVerify = true
			if err := tls.Client(theirs, test.client).HandshakeContext(t.Context()); (err == nil) != test.speaks {
				t.Errorf("the handshake ends with %v", err)
			}
			_ = theirs.Close()
		})
	}
}
