package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/counters"
)

// firstBytes is the initial size of the buffer of a body.
const firstBytes = 32 << 10

// maxKept is the largest buffer that is kept for the next request.
const maxKept = 4 << 20

// buffers are kept for the next request.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *bytes.Buffer {
	if buffer, found := b.pool.Get().(*bytes.Buffer); found {
		buffer.Reset()
		return buffer
	}
	return &bytes.Buffer{}
}

func (b *buffers) put(buffer *bytes.Buffer) {
	if buffer.Cap() <= maxKept {
		b.pool.Put(buffer)
	}
}

// body is a request body that is read.
type body struct {
	bytes.Reader

	text []byte
}

// Close implements io.Closer.
func (*body) Close() error { return nil }

// BodyOf returns the body of a request that a Server handed to a handler. It must not be used after the handler
// returns.
func BodyOf(r *http.Request) []byte {
	if b, is := r.Body.(*body); is {
		return b.text
	}
	return nil
}

// answer is what a handler writes.
type answer struct {
	header http.Header
	status int
	text   *bytes.Buffer
	// path is that of the handler, or "" if there is none or it was not called.
	path   string
	failed bool
}

// BufferOf returns the buffer of the answer, for handlers that would need their own.
func BufferOf(w http.ResponseWriter) *bytes.Buffer {
	if a, is := w.(*answer); is {
		return a.text
	}
	return nil
}

// Fail records that an answer says that the request failed, although its status is that of success.
func Fail(w http.ResponseWriter) {
	if a, is := w.(*answer); is {
		a.failed = true
	}
}

// count counts an answer with a status, 0 for success, to a request that began at some time.
func (s *Server) count(a *answer, status int, began time.Time) {
	outcome := counters.OutcomeOf(status)
	if a.failed {
		outcome = counters.Failed
	}
	s.options.Counters.Answered(s.options.Name, a.path, outcome, s.options.Now().Sub(began))
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(text []byte) (int, error) { return a.text.Write(text) }

// serve reads a body, waits for its turn, calls the handler, and sends the answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(clientKey{}).(*client)
	ctx, cancel := context.WithTimeout(r.Context(), s.options.Limits.Time)
	defer cancel()
	a := answer{header: w.Header(), text: s.buffers.get()}
	defer func() { s.buffers.put(a.text) }()
	var began time.Time
	if s.options.Counters != nil {
		began = s.options.Now()
	}
	status, err := s.answer(ctx, c, r, &a)
	if s.options.Counters != nil {
		s.count(&a, cmp.Or(status, a.status), began)
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(a.text.Len()))
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = w.Write(a.text.Bytes())
	_ = c.hold(0)
	c.awaits()
}

// answer calls the handler. When it returns, the body is no longer in memory, and the server waits for the client.
func (s *Server) answer(ctx context.Context, c *client, r *http.Request, a *answer) (int, error) {
	text := s.buffers.get()
	defer func() { s.buffers.put(text) }()
	c.awaits()
	if err := s.read(c, r, text); err != nil {
		return refusal(err)
	}
	c.queues()
	defer c.awaits()
	limits := s.options.Limits
	weight := int64(min(max(text.Len(), limits.Worked/limits.AtOnce), limits.Worked))
	if s.working.Acquire(ctx, weight) != nil {
		return http.StatusServiceUnavailable, errGivenUp
	}
	defer s.working.Release(weight)
	c.works()
	r = r.WithContext(ctx)
	r.Body = &body{Reader: *bytes.NewReader(text.Bytes()), text: text.Bytes()}
	s.mux.ServeHTTP(a, r)
	a.path = r.Pattern
	if err := c.hold(a.text.Cap()); err != nil {
		return http.StatusServiceUnavailable, err
	}
	return 0, nil
}

// read reads a body. The buffer grows with the bytes that arrive, whatever length the header claims.
func (s *Server) read(c *client, r *http.Request, text *bytes.Buffer) error {
	reader := http.MaxBytesReader(nil, r.Body, int64(s.options.Limits.Body))
	if err := c.hold(text.Cap()); err != nil {
		return err
	}
	for {
		if text.Available() == 0 {
			more := max(text.Cap(), firstBytes)
			if left := r.ContentLength + 1 - int64(text.Len()); left > 0 {
				more = int(min(int64(more), left))
			}
			if err := c.hold(text.Len() + more); err != nil {
				return err
			}
			larger := bytes.NewBuffer(make([]byte, 0, text.Len()+more))
			larger.Write(text.Bytes())
			*text = *larger
		}
		room := text.AvailableBuffer()
		n, err := reader.Read(room[:cap(room)])
		text.Write(room[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// refusal returns the status and the text for an error of read.
func refusal(err error) (int, error) {
	if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("the request has more than %d bytes", tooLarge.Limit)
	}
	if errors.Is(err, errGivenUp) {
		return http.StatusServiceUnavailable, err
	}
	return http.StatusBadRequest, errors.New("the request cannot be read")
}

// quiet returns a log for the messages of net/http's server. It writes one for each connection that is closed early,
// which any client can cause any number of times.
func quiet(ctx context.Context) *log.Logger {
	return log.New(lines{ctrl.LoggerFrom(ctx).V(4)}, "", 0)
}

// lines writes lines into a log.
type lines struct{ log logr.Logger }

func (l lines) Write(line []byte) (int, error) {
	l.log.Info("Serving", "reason", string(bytes.TrimSpace(line)))
	return len(line), nil
}
