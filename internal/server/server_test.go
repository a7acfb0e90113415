package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// served is a running server.
type served struct {
	t       *testing.T
	address string
	config  *tls.Config
	// keeps is KeepAlive.
	keeps bool
	// stop ends it and waits for that.
	stop func()
}

const (
	maxBody     = 8 << 20
	connections = 20
)

// serve starts a server with one handler. Clients may take a minute, because the machine may be busy.
func serve(t *testing.T, limit time.Duration, handler http.HandlerFunc) *served {
	t.Helper()
	return serveFor(t, time.Minute, limit, false, handler)
}

// serveFor starts a server with one handler. client is how long a client may take.
func serveFor(t *testing.T, client, limit time.Duration, keepAlive bool, handler http.HandlerFunc) *served {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pki.Serve(t, t.TempDir()).TLS()}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
	}
	server := New(Options{
		Listener: listener, TLS: config, Connections: connections, MaxBody: maxBody, KeepAlive: keepAlive, Time: limit,
	})
	server.clientTime = client
	server.Register("/", handler)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	s := &served{
		t: t, address: listener.Addr().String(), keeps: keepAlive,
		config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // who answers is not in question
		stop: sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}),
	}
	t.Cleanup(s.stop)
	return s
}

// open opens a connection, on which it sends something, and tries again if that takes longer than a client may take.
func (s *served) open(text string) net.Conn {
	s.t.Helper()
	for {
		c, err := (&tls.Dialer{Config: s.config}).DialContext(s.t.Context(), "tcp", s.address)
		if err == nil {
			s.t.Cleanup(func() { _ = c.Close() })
			if _, err = io.WriteString(c, text); err == nil {
				return c
			}
		}
		if s.t.Context().Err() != nil {
			s.t.Fatal(err)
		}
	}
}

// post sends a request and returns the status and the answer.
func (s *served) post(body io.Reader) (int, string, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "https://"+s.address+"/x", body)
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.config.Clone(), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.Close == s.keeps || response.ProtoMajor != 1 {
		return 0, "", fmt.Errorf("the connection is kept or closed: %+v", response)
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func (s *served) answers(body, want string) {
	s.t.Helper()
	if status, text, err := s.post(strings.NewReader(body)); status != http.StatusOK || text != want || err != nil {
		s.t.Errorf("status %d, %d bytes, %v; want %d", status, len(text), err, len(want))
	}
}

// stillAnswers sends a request until it is answered: on a busy machine it may take longer than a client may.
func (s *served) stillAnswers() {
	s.t.Helper()
	for {
		status, text, err := s.post(strings.NewReader("honest"))
		if err != nil && s.t.Context().Err() == nil {
			continue
		}
		if status != http.StatusOK || text != "honest" || err != nil {
			s.t.Errorf("status %d, %q, %v", status, text, err)
		}
		return
	}
}

// closed waits until the other side has closed a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(5 * clientTime)) //nolint:forbidigo // a connection ends in real time
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
}

// echo writes the body, of which half comes from each place where it is.
func echo(w http.ResponseWriter, r *http.Request) {
	x, _ := w.(*Exchange)
	half := len(x.Body) / 2
	if _, err := io.CopyN(io.Discard, r.Body, int64(half)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	_, _ = w.Write(x.Body[:half])
	_, _ = io.Copy(w, r.Body)
}

func header(length int) string {
	return fmt.Sprintf("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length)
}

func TestServer_AnswersBodiesOfEverySize(t *testing.T) {
	t.Parallel()
	s := serve(t, time.Minute, echo)
	for _, size := range []int{0, 1, minWorked, minWorked + 1, worked, worked + 1, maxBody} {
		body := strings.Repeat("x", size)
		s.answers(body, body)
	}
	for name, test := range map[string]struct {
		body   io.Reader
		status int
		want   string
	}{
		"too large": {strings.NewReader(strings.Repeat("x", maxBody+1)), 413, "the request has more than 8388608 bytes\n"},
		"no length": {io.MultiReader(strings.NewReader("x")), 411, "the request has no Content-Length\n"},
	} {
		if status, text, err := s.post(test.body); status != test.status || text != test.want || err != nil {
			t.Errorf("%s: status %d, %q, %v", name, status, text, err)
		}
	}
}

func TestServer_SendsHeaderAndStatusOfAHandler(t *testing.T) {
	t.Parallel()
	s := serve(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/y")
		w.WriteHeader(http.StatusCreated)
	})
	c := s.open(header(0))
	text, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 201 Created\r\n") || !strings.Contains(string(text), "\r\nLocation: /y\r\n") {
		t.Errorf("%q %v", text, err)
	}
}

func TestServer_SpeaksNoHTTP2(t *testing.T) {
	t.Parallel()
	s := serve(t, time.Minute, http.NotFound)
	s.config.NextProtos = []string{"h2", "http/1.1"}
	if got := s.open("").(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("%q is spoken", got)
	}
}

func TestServer_CountsAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, body string
		status     int
		outcome    string // that the handler chooses
		want       string
	}{
		"created":            {"/x", "", http.StatusCreated, "", "/x done"},
		"a client's fault":   {"/x", "", http.StatusBadRequest, "", "/x refused"},
		"its own fault":      {"/x", "", http.StatusInternalServerError, "", "/x failed"},
		"of the handler":     {"/x", "", http.StatusOK, Refused, "/x refused"},
		"another path":       {"/y", "", http.StatusOK, "", " refused"},
		"a body that is big": {"/x", "12345", http.StatusOK, "", " refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counted []string
			server := New(Options{Name: "hooks", MaxBody: 4, Time: time.Minute, Answered: func(name, path, outcome string, took time.Duration) {
				counted = append(counted, path+" "+outcome)
				if name != "hooks" || took < 0 || took > time.Minute {
					t.Errorf("%s took %s", name, took)
				}
			}})
			server.Register("/x", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.(*Exchange).Outcome = test.outcome
				w.WriteHeader(test.status)
			}))
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, strings.NewReader(test.body))
			server.serve(httptest.NewRecorder(), request)
			if !slices.Equal(counted, []string{test.want}) {
				t.Errorf("counted are %q, want %q", counted, test.want)
			}
		})
	}
}

// TestServer_EndsSlowClients takes all connections in every way in which a client can keep the server waiting.
func TestServer_EndsSlowClients(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":          "",
		"half of a header": "POST /x HTTP/1.1\r\n",
		"half of a body":   header(maxBody) + "x",
		"no other request": header(0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveFor(t, clientTime, time.Minute, text == header(0), echo)
			var all []net.Conn
			for range connections {
				all = append(all, s.open(text))
			}
			s.stillAnswers()
			for _, c := range all {
				closed(t, c)
			}
		})
	}
}

func TestServer_LimitsConnections(t *testing.T) {
	t.Parallel()
	s := serve(t, time.Minute, echo)
	for range connections {
		s.open("")
	}
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 300 * time.Millisecond}, Config: s.config}
	if c, err := dialer.DialContext(t.Context(), "tcp", s.address); err == nil {
		_ = c.Close()
		t.Error("one connection more is served")
	}
}

func TestServer_EndsClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	long := make([]byte, 32<<20) // more than the buffers of a connection
	s := serveFor(t, clientTime, time.Minute, false, func(w http.ResponseWriter, r *http.Request) {
		if x, _ := w.(*Exchange); len(x.Body) == 1 {
			_, _ = w.Write(long)
			return
		}
		echo(w, r)
	})
	for range connections {
		s.open(header(1) + "x")
	}
	s.stillAnswers()
}

func TestServer_TellsAHandlerThatTimeIsOver(t *testing.T) {
	t.Parallel()
	told := make(chan error, 1)
	s := serve(t, 100*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		told <- r.Context().Err()
		http.Error(w, "late", http.StatusInternalServerError)
	})
	if status, _, err := s.post(strings.NewReader("x")); status != http.StatusInternalServerError || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	if err := <-told; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the handler is told %v", err)
	}
}

func TestServer_WorksOnAFewRequestsAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size, want int
	}{"small": {1, worked / minWorked}, "large": {worked, 1}, "larger": {worked + 1, 1}} {
		var (
			mutex         sync.Mutex
			running, most int
		)
		entered, leave := make(chan struct{}, connections), make(chan struct{})
		s := serve(t, time.Minute, func(http.ResponseWriter, *http.Request) {
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
		for range connections {
			wait.Go(func() {
				if status, _, err := s.post(strings.NewReader(strings.Repeat("x", test.size))); status != http.StatusOK || err != nil {
					t.Errorf("%s: status %d, %v", name, status, err)
				}
			})
		}
		for range test.want {
			<-entered
		}
		for range connections {
			leave <- struct{}{}
		}
		wait.Wait()
		if most != test.want {
			t.Errorf("%s: %d at once, want %d", name, most, test.want)
		}
	}
}

func TestServer_AnswersWhatIsInProgressWhenItEnds(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	s := serve(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		if r.Context().Err() != nil {
			t.Error("the handler is told to end")
		}
		echo(w, r)
	})
	var wait sync.WaitGroup
	wait.Go(func() { s.answers("honest", "honest") })
	<-entered
	wait.Go(s.stop)
	for refused := false; !refused; { // it no longer listens
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.address)
		if refused = err != nil; !refused {
			_ = c.Close()
		}
	}
	close(leave)
	wait.Wait()
}
