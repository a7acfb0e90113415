package manager

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	runtimeserver "sigs.k8s.io/cluster-api/exp/runtime/server"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/hooks"
)

// Hooks are the options of the command hooks.
type Hooks struct {
	Serving

	// Port is the port on which the hooks listen.
	Port int
	// BindAddress is the address on which they listen; empty means all.
	BindAddress string
	// CertDir is the folder with tls.crt and tls.key, which are read again when they change.
	CertDir string
}

// Flags returns the flags of the command hooks, in groups.
func (o *Hooks) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	f := groups.FlagSet("runtime hook")
	f.IntVar(&o.Port, "port", 9443, "port of the hooks")
	f.StringVar(&o.BindAddress, "bind-address", "", "address on which the hooks listen; defaults to all")
	f.StringVar(&o.CertDir, "cert-dir", "", "folder with tls.crt and tls.key")
	f = groups.FlagSet("TLS and diagnostics")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file, with which the API server reviews tokens for "+
		"diagnostics; defaults to the Pod's service account")
	o.addFlags(f)
	o.Logging.addFlags(groups.FlagSet("logging"))
	return groups
}

// check validates the flags whose mistakes the start would not show.
func (o *Hooks) check() error {
	if err := o.Serving.check(); err != nil || o.CertDir != "" {
		return err
	}
	return usagef("--cert-dir is required; name the folder with tls.crt and tls.key of a certificate for the Service")
}

// RunHooks serves the runtime hooks until ctx ends. The flags that were given go to the first line of logs.
func RunHooks(ctx context.Context, o Hooks, flags *pflag.FlagSet, logs io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	o.Log, o.Level = o.Logging.logger(logs)
	ctrl.SetLogger(o.Log)
	ctx = ctrl.LoggerInto(ctx, o.Log)
	logStart(ctx, "hooks", flags)
	return o.run(ctx)
}

// reviewQPS and reviewBurst limit the requests that clients with any token can cause.
const reviewQPS, reviewBurst = 10, 20

// run serves until ctx ends or a server fails. Only diagnostics with authentication need an API server.
func (o *Hooks) run(ctx context.Context) error {
	config := &rest.Config{}
	if !o.InsecureDiagnostics && o.DiagnosticsAddress != off {
		var err error
		if config, err = restConfig(o.Kubeconfig); err != nil {
			return fmt.Errorf("reading kubeconfig: %w; without an API server use --diagnostics-address 0", err)
		}
	}
	config.QPS, config.Burst = reviewQPS, reviewBurst
	mgr, err := o.newManager(config, manager.Options{})
	if err != nil {
		return err
	}
	hooks, err := (&hooks.Handlers{Rendered: mgr.counters.rendered("hook")}).NewServer(runtimeserver.Options{
		Host: o.BindAddress, Port: o.Port, CertDir: o.CertDir, TLSOpts: mgr.tls,
	})
	if err != nil {
		return err
	}
	for _, err := range []error{
		mgr.Add(hooks), mgr.AddReadyzCheck("hooks", hooks.StartedChecker()), mgr.counters.register(),
	} {
		if err != nil {
			return fmt.Errorf("setting up hooks: %w", err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("serving hooks: %w", err)
	}
	return nil
}
