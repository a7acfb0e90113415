package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension"
)

// Hooks are the options of the command hooks.
type Hooks struct {
	// Port is the port on which the hooks listen.
	Port int
	// BindAddress is the address on which they listen; empty means all.
	BindAddress string
	// CertDir is the folder with tls.crt and tls.key, which are read again when they change.
	CertDir string
	// HealthAddr is a listening address; "0" disables it.
	HealthAddr string
	// TLS is what connections have to keep to.
	TLS TLSOptions
	// Logging configures the logs.
	Logging Logging
}

// Flags returns the flags of the command hooks, in groups.
func (o *Hooks) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	f := groups.FlagSet("runtime hook")
	f.IntVar(&o.Port, "port", 9443, "port of the hooks")
	f.StringVar(&o.BindAddress, "bind-address", "", "address on which the hooks listen; defaults to all")
	f.StringVar(&o.CertDir, "cert-dir", "", "folder with tls.crt and tls.key")
	o.TLS.addFlags(groups.FlagSet("TLS"))
	groups.FlagSet("diagnostics").StringVar(&o.HealthAddr, "health-addr", ":8081",
		"address of /healthz and /readyz; 0 disables it")
	o.Logging.addFlags(groups.FlagSet("logging"))
	return groups
}

// check validates the flags, so that mistakes show at the start and not when the first request fails.
func (o *Hooks) check() error {
	if err := firstOf(o.Logging.check(), o.TLS.check(), checkPort("--port", o.Port, false),
		checkHost("--bind-address", o.BindAddress)); err != nil {
		return err
	}
	if o.CertDir == "" {
		return usagef("--cert-dir is required; name the folder with tls.crt and tls.key of a certificate for the Service")
	}
	return firstOf(checkFiles("--cert-dir", o.CertDir, "tls.crt", "tls.key"), checkAddress("--health-addr", o.HealthAddr))
}

// RunHooks serves the runtime hooks until ctx ends. The flags that were given go to the first line of logs.
func RunHooks(ctx context.Context, o Hooks, flags *pflag.FlagSet, logs io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	log, _ := o.Logging.logger(logs)
	ctrl.SetLogger(log)
	ctx = ctrl.LoggerInto(ctx, log)
	logStart(ctx, "hooks", flags)
	return serveHooks(ctx, o, log)
}

// serveHooks serves until ctx ends or a server fails.
func serveHooks(ctx context.Context, o Hooks, log logr.Logger) error {
	security, err := o.TLS.server()
	if err != nil {
		return err
	}
	hooks, err := (&extension.Handlers{}).NewServer(extension.ServerOptions{
		Host: o.BindAddress, Port: o.Port, CertDir: o.CertDir, TLS: security,
	})
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
		health := healthServer(readiness{"hooks": hooks.StartedChecker()})
		go func() { ends <- health.Serve(probes(listener)) }()
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
