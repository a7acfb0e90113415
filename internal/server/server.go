// Package server serves HTTPS to clients that nobody knows, within bounds of memory and time that controller-runtime's
// server of webhooks does not have. Few connections are open at once; others wait in the backlog of the listener, where
// they cost nothing and their time does not run.
package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/semaphore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options configure a Server.
type Options struct {
	// Listener is where clients connect, with TLS.
	Listener net.Listener
	TLS      *tls.Config
	// Connections is how many are open at once. Each holds a body of at most MaxBody bytes, and then an answer.
	Connections, MaxBody int
	// KeepAlive keeps them clientTime for another request. They take the places of others.
	KeepAlive bool
	// Time is how long an answer may take, with the wait for those before it.
	Time time.Duration
	// Answered counts answers of the server Name by path and outcome; nil counts none.
	Answered func(name, path, outcome string, took time.Duration)
	Name     string
}

const (
	// clientTime is how long a client may take for the handshake, to send a request, and to read the answer.
	clientTime = 3 * time.Second
	// worked is how many bytes of bodies are answered at once. A larger one is answered alone, a small one is minWorked.
	worked, minWorked = 4 << 20, worked / 16
)

// Server implements webhook.Server of controller-runtime.
type Server struct {
	options Options
	mux     *http.ServeMux
	working *semaphore.Weighted
	// clientTime is the constant of that name. Only tests set another, because they share a busy machine.
	clientTime time.Duration
}

// New returns a Server.
func New(o Options) *Server {
	return &Server{options: o, mux: http.NewServeMux(), working: semaphore.NewWeighted(worked), clientTime: clientTime}
}

// NeedLeaderElection implements webhook.Server: every replica serves.
func (*Server) NeedLeaderElection() bool { return false }

// WebhookMux implements webhook.Server.
func (s *Server) WebhookMux() *http.ServeMux { return s.mux }

// Register adds a handler for a path. Its ResponseWriter is an *Exchange.
func (s *Server) Register(path string, handler http.Handler) { s.mux.Handle(path, handler) }

// StartedChecker implements webhook.Server. Clients can connect before the start, and are then answered.
func (*Server) StartedChecker() healthz.Checker { return healthz.Ping }

// Start serves until ctx ends and the requests in progress are answered.
func (s *Server) Start(ctx context.Context) error {
	config := s.options.TLS.Clone()
	config.NextProtos = []string{"http/1.1"} // a connection of HTTP/2 has any number of requests
	serving := &http.Server{
		Handler: http.HandlerFunc(s.serve), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: s.clientTime, ReadTimeout: s.clientTime,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		// Any client can cause any number of lines.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(ctrl.LoggerFrom(ctx).V(4)), slog.LevelInfo),
	}
	serving.SetKeepAlivesEnabled(s.options.KeepAlive)
	return (&manager.Server{
		Name: s.options.Name, Server: serving, ShutdownTimeout: new(10 * time.Second),
		Listener: tls.NewListener(netutil.LimitListener(s.options.Listener, s.options.Connections), config),
	}).Start(ctx)
}

// Outcomes of answers and writes.
const (
	Done    = "done"
	Refused = "refused"
	Failed  = "failed"
)

// OutcomeOf is the outcome that a status of HTTP stands for: refused is the fault of the client.
func OutcomeOf(status int) string {
	switch {
	case status >= http.StatusInternalServerError:
		return Failed
	case status >= http.StatusBadRequest:
		return Refused
	default:
		return Done
	}
}

// Exchange is a request and the answer to it, which is sent when the handler has returned.
type Exchange struct {
	http.ResponseWriter // for the header
	// Body is that of the request. It must not be used after the handler has returned.
	Body   []byte
	Answer bytes.Buffer
	// Outcome is counted; empty is OutcomeOf the status.
	Outcome string
	status  int
}

// WriteHeader implements http.ResponseWriter.
func (x *Exchange) WriteHeader(status int) { x.status = status }

// Write implements http.ResponseWriter.
func (x *Exchange) Write(text []byte) (int, error) { return x.Answer.Write(text) }

// refuse answers with a status of failure. No handler was called.
func (x *Exchange) refuse(status int, why string) (path string) {
	http.Error(x, why, status)
	return ""
}

// serve answers a request. While the answer is sent, others are worked on.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	began := time.Now() //nolint:forbidigo // durations and deadlines of connections are real
	x := &Exchange{ResponseWriter: w, status: http.StatusOK}
	path := s.answer(x, r)
	took := time.Since(began)
	if s.options.Answered != nil {
		s.options.Answered(s.options.Name, path, cmp.Or(x.Outcome, OutcomeOf(x.status)), took)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(began.Add(took + s.clientTime))
	w.WriteHeader(x.status)
	_, _ = w.Write(x.Answer.Bytes())
}

// answer reads a body, waits for its turn and calls the handler, whose path it returns.
func (s *Server) answer(x *Exchange, r *http.Request) (path string) {
	switch limit := s.options.MaxBody; {
	case r.ContentLength < 0:
		return x.refuse(http.StatusLengthRequired, "the request has no Content-Length")
	case r.ContentLength > int64(limit):
		return x.refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes", limit))
	}
	x.Body = make([]byte, r.ContentLength)
	defer func() { x.Body = nil }()
	if _, err := io.ReadFull(r.Body, x.Body); err != nil {
		return x.refuse(http.StatusBadRequest, "the request cannot be read")
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.options.Time)
	defer cancel()
	weight := int64(min(max(len(x.Body), minWorked), worked))
	if s.working.Acquire(ctx, weight) != nil {
		return x.refuse(http.StatusServiceUnavailable, "too many requests at once; try again")
	}
	defer s.working.Release(weight)
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(x.Body))
	s.mux.ServeHTTP(x, r)
	return r.Pattern
}
