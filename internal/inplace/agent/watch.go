package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

// WatchInterval is the time between two comparisons.
const WatchInterval = time.Minute

const (
	requestLimit = 5 * time.Second
	maxRequest   = 4 << 10
)

// Watch compares the files of the node with the version in o.From, at once and at every interval, until ctx ends. GET
// /readyz at the address, which has to be of the loopback interface, answers 200 while they are the same and 503 with
// the paths that differ otherwise. Each change is written to log.
func Watch(ctx context.Context, o Options, address string, interval time.Duration, log io.Writer) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return fmt.Errorf("%q is not an address of the loopback interface with a port, such as 127.0.0.1:19279", address)
	}
	on, err := Open(o.Root)
	if err != nil {
		return err
	}
	w := watcher{host: node.Host{Files: on}, options: o, log: log, state: "not compared yet"}
	w.compare()
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", w.serve)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: requestLimit, WriteTimeout: requestLimit, IdleTimeout: requestLimit,
		MaxHeaderBytes: maxRequest,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { w.run(ctx, interval) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// watcher is what Watch knows.
type watcher struct {
	host    node.Host
	options Options
	log     io.Writer

	mutex sync.Mutex
	state string // what is wrong; empty if nothing is
}

func (w *watcher) run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.compare()
		}
	}
}

func (w *watcher) compare() {
	state := w.drift()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state != w.state {
		shown := state
		if shown == "" {
			shown = "the files on this node are those of the mounted Secret"
		}
		_, _ = fmt.Fprintf(w.log, "%s: %s\n", contract.Name, shown)
	}
	w.state = state
}

// drift says what is wrong.
func (w *watcher) drift() string {
	version, err := w.options.version()
	if err != nil {
		return finding.Line(err.Error(), maxReason)
	}
	drifted, err := w.host.Drift(version)
	if err != nil {
		return finding.Line(err.Error(), maxReason)
	}
	if len(drifted) == 0 {
		return ""
	}
	return "not as in the mounted Secret: " + strings.Join(drifted, ", ")
}

func (w *watcher) serve(response http.ResponseWriter, _ *http.Request) {
	w.mutex.Lock()
	state := w.state
	w.mutex.Unlock()
	if state == "" {
		_, _ = io.WriteString(response, "ok\n")
		return
	}
	http.Error(response, state, http.StatusServiceUnavailable)
}
