package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/server"
)

// HookOptions configure where the runtime hooks are served.
type HookOptions struct {
	// Port is the port on which they listen; 0 disables them in the manager.
	Port int
	// BindAddress is the address on which they listen; empty means all.
	BindAddress string
	// CertDir is the folder with tls.crt and tls.key, which are read again when they change.
	CertDir string
	// ClientCAName is the file in CertDir with the CA certificates that client certificates must be signed by; empty
	// requires no client certificate.
	ClientCAName string
}

// server returns the options of a server.
func (o HookOptions) server() extension.ServerOptions {
	return extension.ServerOptions{Host: o.BindAddress, Port: o.Port, CertDir: o.CertDir, ClientCAName: o.ClientCAName}
}

// check validates the flags, so that mistakes show at the start and not when the first request fails. prefix is that of
// the flags.
func (o HookOptions) check(prefix string) error {
	if err := firstOf(checkPort("--"+prefix+"port", o.Port, false),
		checkHost("--"+prefix+"bind-address", o.BindAddress)); err != nil {
		return err
	}
	if o.CertDir == "" {
		return usagef("--%scert-dir is required; name the folder with tls.crt and tls.key of a certificate for the Service",
			prefix)
	}
	if err := checkCertificate("--"+prefix+"cert-dir", o.CertDir); err != nil || o.ClientCAName == "" {
		return err
	}
	if filepath.Base(o.ClientCAName) != o.ClientCAName {
		return usagef("--%sclient-ca-name %q: name a file in --%scert-dir, without a folder", prefix, o.ClientCAName, prefix)
	}
	return checkFiles("--"+prefix+"client-ca-name", o.CertDir, o.ClientCAName)
}

// HooksOnly are the options of the command hooks.
type HooksOnly struct {
	HookOptions

	// HealthAddr is a listening address; "0" disables it.
	HealthAddr string
	// Verbosity is the log level, 0 to 5.
	Verbosity int
}

// AddFlags adds the flags of the command hooks to f.
func (o *HooksOnly) AddFlags(f *pflag.FlagSet) {
	f.IntVar(&o.Port, "port", 9443, "port of the hooks")
	f.StringVar(&o.BindAddress, "bind-address", "", "address on which the hooks listen; defaults to all")
	f.StringVar(&o.CertDir, "cert-dir", "", "folder with tls.crt and tls.key")
	f.StringVar(&o.ClientCAName, "client-ca-name", "",
		"file in that folder with the CA certificates that client certificates must be signed by; "+
			"by default none is required")
	f.StringVar(&o.HealthAddr, "health-addr", ":8081", "address of /healthz and /readyz; 0 disables it")
	f.IntVarP(&o.Verbosity, "v", "v", 2, "log level, 0 to 5")
}

// RunHooks serves nothing but the runtime hooks until ctx ends. Logs go to logs.
func RunHooks(ctx context.Context, o HooksOnly, logs io.Writer) error {
	if err := firstOf(checkVerbosity(o.Verbosity), o.check(""), checkAddress("--health-addr", o.HealthAddr)); err != nil {
		return err
	}
	log := newLogger(o.Verbosity, logs)
	ctrl.SetLogger(log)
	return serveHooks(ctrl.LoggerInto(ctx, log), o, log)
}

// serveHooks serves until ctx ends or a server fails.
func serveHooks(ctx context.Context, o HooksOnly, log logr.Logger) error {
	hooks, err := (&extension.Handlers{}).NewServer(o.server())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, 2)
	serving := 1
	if o.HealthAddr != off {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.HealthAddr)
		if err != nil {
			return fmt.Errorf("--health-addr %s: %w; choose another address, or 0 for none", o.HealthAddr, err)
		}
		serving++
		health := healthServer(hooks.StartedChecker())
		go func() { ends <- health.Serve(server.Limit(listener, 100)) }()
		context.AfterFunc(ctx, func() { _ = health.Close() })
	}
	go func() { ends <- hooks.Start(ctx) }()
	log.Info("Serving hooks", "port", o.Port)
	var failed error
	for range serving {
		err := <-ends
		if failed == nil && err != nil && !errors.Is(err, http.ErrServerClosed) {
			failed = fmt.Errorf("--port %s: serving hooks: %w; choose another port, or check the certificate",
				strconv.Itoa(o.Port), err)
		}
		cancel()
	}
	hooks.Drain()
	return failed
}

// healthServer answers /healthz always and /readyz by started.
func healthServer(started healthz.Checker) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/healthz",
		http.StripPrefix("/healthz", &healthz.Handler{Checks: map[string]healthz.Checker{"ping": healthz.Ping}}))
	mux.Handle("/readyz",
		http.StripPrefix("/readyz", &healthz.Handler{Checks: map[string]healthz.Checker{"hooks": started}}))
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 20}
}
