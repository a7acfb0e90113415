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

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	ctrl "sigs.k8s.io/controller-runtime"

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
func (o HookOptions) server(security server.TLS) extension.ServerOptions {
	return extension.ServerOptions{
		Host: o.BindAddress, Port: o.Port, CertDir: o.CertDir, ClientCAName: o.ClientCAName, TLS: security,
	}
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
	if err := checkFiles("--"+prefix+"cert-dir", o.CertDir, "tls.crt", "tls.key"); err != nil || o.ClientCAName == "" {
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
	// TLS is what connections have to keep to.
	TLS TLSOptions
	// Logging configures the logs.
	Logging Logging
}

// Flags returns the flags of the command hooks, in groups.
func (o *HooksOnly) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	f := groups.FlagSet("runtime hook")
	f.IntVar(&o.Port, "port", 9443, "port of the hooks")
	f.StringVar(&o.BindAddress, "bind-address", "", "address on which the hooks listen; defaults to all")
	f.StringVar(&o.CertDir, "cert-dir", "", "folder with tls.crt and tls.key")
	f.StringVar(&o.ClientCAName, "client-ca-name", "",
		"file in that folder with the CA certificates that client certificates must be signed by; "+
			"default: no client check")
	o.TLS.addFlags(groups.FlagSet("TLS"))
	groups.FlagSet("diagnostics").StringVar(&o.HealthAddr, "health-addr", ":8081",
		"address of /healthz and /readyz; 0 disables it")
	o.Logging.addFlags(groups.FlagSet("logging"))
	return groups
}

// RunHooks serves nothing but the runtime hooks until ctx ends. The flags that were given go to the first line of logs.
func RunHooks(ctx context.Context, o HooksOnly, flags *pflag.FlagSet, logs io.Writer) error {
	if err := firstOf(o.Logging.check(), o.TLS.check(), o.check(""),
		checkAddress("--health-addr", o.HealthAddr)); err != nil {
		return err
	}
	log, _ := o.Logging.logger(logs)
	ctrl.SetLogger(log)
	ctx = ctrl.LoggerInto(ctx, log)
	logStart(ctx, "hooks", flags)
	return serveHooks(ctx, o, log)
}

// serveHooks serves until ctx ends or a server fails.
func serveHooks(ctx context.Context, o HooksOnly, log logr.Logger) error {
	security, err := o.TLS.server()
	if err != nil {
		return err
	}
	hooks, err := (&extension.Handlers{}).NewServer(o.server(security))
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
