package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/diagnostics"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/server"
)

// maxProbes is how many connections the server of probes has.
const maxProbes = 100

// readiness are the checks of /readyz by name.
type readiness map[string]healthz.Checker

// ServeHTTP answers 200 if all checks pass, and otherwise 500 with the names of those that do not. A check that does
// not pass yet is no log line: the kubelet asks again, and reports it.
func (r readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var missing []string
	for name, check := range r {
		if check(request) != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		http.Error(w, fmt.Sprintf("not ready: %q", missing), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// healthServer answers /healthz always and /readyz by the checks.
func healthServer(checks readiness) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/healthz", readiness{})
	mux.Handle("/readyz", checks)
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 20}
}

// addHealth adds the server of probes to mgr. It runs as long as the manager does.
func addHealth(ctx context.Context, mgr *drainedManager, o Options) error {
	if o.HealthAddr == off || o.HealthAddr == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.HealthAddr)
	if err != nil {
		return fmt.Errorf("--health-addr %s: %w; choose another address, or 0 for none", o.HealthAddr, err)
	}
	err = mgr.Add(&manager.Server{
		Name: "health", Server: healthServer(mgr.checks), Listener: probes(listener), ShutdownTimeout: new(time.Second),
	})
	if err != nil {
		return fmt.Errorf("adding the server of probes: %w", err)
	}
	return nil
}

// maxDiagnostics is how many connections the server of diagnostics has.
const maxDiagnostics = 50

// addDiagnostics adds the server of metrics, profiles and the log level to mgr. Its certificate is
// self-signed; clients authenticate with a token.
func addDiagnostics(ctx context.Context, mgr *drainedManager, o Options) error {
	if o.DiagnosticsAddress == off || o.DiagnosticsAddress == "" {
		return nil
	}
	handler := diagnostics.Metrics(metrics.Registry)
	config := mgr.tls.Config()
	if !o.InsecureDiagnostics {
		access, err := diagnostics.NewAccess(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return err
		}
		handler = diagnostics.Handler(metrics.Registry, o.Level, access)
		certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{{127, 0, 0, 1}}, nil)
		if err != nil {
			return fmt.Errorf("making a certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return fmt.Errorf("making a certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.DiagnosticsAddress)
	if err != nil {
		return fmt.Errorf("--diagnostics-address %s: %w; choose another address, or 0 for none", o.DiagnosticsAddress, err)
	}
	listener = server.Limit(listener, maxDiagnostics)
	if !o.InsecureDiagnostics {
		listener = tls.NewListener(listener, config)
	}
	err = mgr.Add(&manager.Server{
		Name: "diagnostics", Listener: listener, ShutdownTimeout: new(time.Second),
		Server: &http.Server{
			Handler: handler, MaxHeaderBytes: 64 << 10, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second,
			WriteTimeout: 5 * time.Minute, // of a profile
			BaseContext:  func(net.Listener) context.Context { return ctx },
			ErrorLog:     log.New(io.Discard, "", 0), // of scanners that do not speak TLS
		},
	})
	if err != nil {
		return fmt.Errorf("adding the server of diagnostics: %w", err)
	}
	return nil
}

// probes limits the connections of the server of probes.
func probes(listener net.Listener) net.Listener { return server.Limit(listener, maxProbes) }
