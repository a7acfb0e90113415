// Package server serves HTTPS to untrusted clients with a bounded amount of memory and time. It limits connections,
// bodies in memory, and requests that are answered at once. At a limit, the connection of the client that it has waited
// for longest is closed: a client that sends slowly does not keep the others out.
//
// It replaces controller-runtime's server of webhooks, which limits only the size of headers and the time for them.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/counters"
)

// Options configure where a Server listens and its limits.
type Options struct {
	// Host is the address to listen on; empty means all. Port is the port.
	Host string
	Port int
	// CertDir is the folder with the certificate and its key, which are read again when they change.
	CertDir string
	// CertName and KeyName are their files in CertDir; empty means tls.crt and tls.key.
	CertName, KeyName string
	// TLS is what connections have to keep to.
	TLS TLS
	// ClientCAName is the file in CertDir with the CA certificates that client certificates must be signed by. It is
	// read again for each connection. Empty requires no client certificate.
	ClientCAName string
	// Limits are what clients can use up.
	Limits Limits
	// Counters count answers under Name, together with Now, the clock; nil counts none.
	Counters *counters.Counters
	Name     string
	Now      func() time.Time
}

// TLS is what connections of all servers of the program have to keep to. Its zero value is TLS 1.2 or newer, with the
// cipher suites that Go chooses.
type TLS struct {
	// MinVersion is the oldest version of the protocol.
	MinVersion uint16
	// CipherSuites are those of TLS 1.2; empty leaves the choice to Go. Those of TLS 1.3 cannot be chosen.
	CipherSuites []uint16
}

// Config returns a configuration. It speaks HTTP/1.1 only: HTTP/2 lets one connection send any number of requests.
func (t TLS) Config() *tls.Config {
	return &tls.Config{
		MinVersion: max(t.MinVersion, tls.VersionTLS12), CipherSuites: t.CipherSuites,
		NextProtos: []string{"http/1.1"},
	}
}

// Limits bound what clients can use up. All of them are required.
type Limits struct {
	// Connections is how many are open at once. One costs about 50 kB.
	Connections int
	// Body is the largest body of a request in bytes.
	Body int
	// AtOnce is how many requests are answered at once if they are small. Others wait.
	AtOnce int
	// Worked is how many bytes of bodies are answered at once. A larger body is answered alone. A body smaller than
	// Worked/AtOnce counts as that.
	Worked int
	// Time is how long a request may take from its first byte to its answer. Sending the answer may take as long again.
	Time time.Duration
}

const (
	// maxWaiting is how many bytes may be in memory of bodies that wait and of answers that are being sent.
	maxWaiting = 32 << 20
	// headerTime is how long a client may take for the handshake, and again for the header of a request.
	headerTime = 5 * time.Second
	// idleTime is how long a connection may be open without a request; as long as that of Go's client.
	idleTime = 90 * time.Second
	// maxHeader is the size of the header of a request in bytes.
	maxHeader = 16 << 10
)

// DrainTime is how long requests in progress may take when the server stops. The grace period of a Pod is longer.
const DrainTime = 10 * time.Second

// Server is a server of HTTPS. It implements webhook.Server of controller-runtime and manager.Runnable.
type Server struct {
	options Options
	mux     *http.ServeMux
	clients clients
	working *semaphore.Weighted
	buffers buffers
	started atomic.Bool
	// certificates is nil before the server starts.
	certificates atomic.Pointer[certwatcher.CertWatcher]
	// draining holds a server that has stopped listening and still answers.
	draining sync.WaitGroup
}

// New returns a Server.
func New(o Options) *Server {
	s := &Server{
		options: o, mux: http.NewServeMux(), clients: clients{limit: o.Limits.Connections},
		working: semaphore.NewWeighted(int64(o.Limits.Worked)),
	}
	if o.Counters != nil {
		o.Counters.Server(o.Name, s.Expires)
	}
	return s
}

// Expires returns when the certificate in use expires, the zero time before the server has started.
func (s *Server) Expires() time.Time {
	watcher := s.certificates.Load()
	if watcher == nil {
		return time.Time{}
	}
	certificate, err := watcher.GetCertificate(nil)
	if err != nil || certificate.Leaf == nil {
		return time.Time{}
	}
	return certificate.Leaf.NotAfter
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (*Server) NeedLeaderElection() bool { return false }

// WebhookMux returns the multiplexer of requests whose body is read.
func (s *Server) WebhookMux() *http.ServeMux { return s.mux }

// Register adds a handler for a path. It is called when the body is read; BodyOf returns the body. What it writes is
// sent after it returns.
func (s *Server) Register(path string, handler http.Handler) { s.mux.Handle(path, handler) }

// Start serves until ctx ends, and returns when no client can connect any more. Drain waits for requests in progress.
func (s *Server) Start(ctx context.Context) error {
	config, err := s.config(ctx)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp",
		net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port)))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(s.serve),
		// Requests in progress are answered although the server stops.
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext:       withClient,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       s.options.Limits.Time,
		WriteTimeout:      2 * s.options.Limits.Time,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          quiet(ctx),
	}
	s.draining.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer s.draining.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), DrainTime)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	})
	s.started.Store(true)
	err = server.Serve(tls.NewListener(s.clients.listen(listener), config))
	if stop() { // it failed
		s.draining.Done()
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// Drain returns when the requests that were in progress when Start returned are answered, after DrainTime at the
// latest.
func (s *Server) Drain() { s.draining.Wait() }

// config returns the configuration of TLS.
func (s *Server) config(ctx context.Context) (*tls.Config, error) {
	o := s.options
	watcher, err := certwatcher.New(filepath.Join(o.CertDir, cmp.Or(o.CertName, "tls.crt")),
		filepath.Join(o.CertDir, cmp.Or(o.KeyName, "tls.key")))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	s.certificates.Store(watcher)
	go func() {
		if err := watcher.Start(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Watching the certificate")
		}
	}()
	config := o.TLS.Config()
	config.GetCertificate = watcher.GetCertificate
	// Answers are large and clients need all of an answer, so small first records only cost system calls.
	config.DynamicRecordSizingDisabled = true
	if o.ClientCAName == "" {
		return config, nil
	}
	if _, err := o.authorities(); err != nil {
		return nil, err
	}
	// The authority of a self-signed certificate changes with it.
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := o.authorities()
		if err != nil {
			return nil, err
		}
		checked := config.Clone()
		checked.GetConfigForClient, checked.ClientCAs, checked.ClientAuth = nil, pool, tls.RequireAndVerifyClientCert
		return checked, nil
	}
	return config, nil
}

// authorities reads the CA certificates that client certificates must be signed by.
func (o Options) authorities() (*x509.CertPool, error) {
	text, err := os.ReadFile(filepath.Join(o.CertDir, o.ClientCAName))
	if err != nil {
		return nil, fmt.Errorf("reading client CA certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading client CA certificates: %s contains no PEM certificate", o.ClientCAName)
	}
	return pool, nil
}

// StartedChecker is healthy once connections are accepted.
func (s *Server) StartedChecker() healthz.Checker {
	address := net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
	return func(r *http.Request) error {
		if !s.started.Load() {
			return errors.New("the server has not been started yet")
		}
		ctx := context.Background() //nolint:forbidigo,contextcheck // tests call without a request
		if r != nil {
			ctx = r.Context()
		}
		connection, err := (&net.Dialer{Timeout: headerTime}).DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("the server is not reachable: %w", err)
		}
		return connection.Close()
	}
}
