package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Serving are the options that the commands manager and hooks share.
type Serving struct {
	// ManagerOptions are those of Cluster API's managers: diagnostics and TLS.
	flags.ManagerOptions

	// Kubeconfig is a kubeconfig file; empty means the Pod's service account.
	Kubeconfig string
	// HealthAddr is where probes are answered; "0" disables it.
	HealthAddr string
	// Logging configures the logs of the commands.
	Logging Logging
	// Log receives the logs. Level sets their level, for diagnostics.
	Log   logr.Logger
	Level routes.StringFlagSetterFunc
}

func (o *Serving) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.HealthAddr, "health-addr", ":8081", "address of /healthz and /readyz; 0 disables it")
	flags.AddManagerOptions(f, &o.ManagerOptions)
}

func (o *Serving) check() error {
	if _, _, err := flags.GetManagerOptions(o.ManagerOptions); err != nil {
		return usagef("--tls-min-version, --tls-cipher-suites or --tls-curve-preferences: %w", err)
	}
	return firstOf(o.Logging.check(), checkAddress("--health-addr", o.HealthAddr),
		checkAddress("--diagnostics-address", o.DiagnosticsAddress))
}

// shutdownTime is how long a process may take to end before it gives up the lease.
const shutdownTime = 15 * time.Second

// servingManager is a manager with the shared parts of its servers.
type servingManager struct {
	manager.Manager

	counters *counters
	tls      []func(*tls.Config)
	// informers are those of fill.
	informers []cache.Informer
}

// newManager returns a manager with the servers of probes and diagnostics.
func (o *Serving) newManager(config *rest.Config, options manager.Options) (*servingManager, error) {
	security, diagnostics, err := flags.GetManagerOptions(o.ManagerOptions)
	if err != nil {
		return nil, fmt.Errorf("reading options of TLS and diagnostics: %w", err)
	}
	m := &servingManager{counters: newCounters(), tls: security}
	config = rest.CopyConfig(config)
	config.Wrap(m.counters.wrap)
	if diagnostics.SecureServing {
		diagnostics.ExtraHandlers["/debug/flags/v"] = routes.StringFlagPutHandler(o.Level)
		diagnostics.TLSOpts = append(diagnostics.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	options.Logger, options.Metrics, options.HealthProbeBindAddress = o.Log, *diagnostics, o.HealthAddr
	options.GracefulShutdownTimeout = new(shutdownTime)
	if m.Manager, err = manager.New(config, options); err != nil {
		return nil, fmt.Errorf("setting up manager: %w", err)
	}
	return m, m.AddHealthzCheck("ping", healthz.Ping)
}

// register serves metrics beside those of controller-runtime.
func (m *servingManager) register() error {
	if err := metrics.Registry.Register(m.counters); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// listen returns the listener of a server and the configuration of TLS. The certificate is read again when it changes.
func (m *servingManager) listen(ctx context.Context, name, address, folder, certificate, key string,
) (net.Listener, *tls.Config, error) {
	watcher, err := certwatcher.New(filepath.Join(folder, certificate), filepath.Join(folder, key))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate of the %s: %w", name, err)
	}
	if err := m.Add(watcher); err != nil {
		return nil, nil, fmt.Errorf("adding the certificate of the %s: %w", name, err)
	}
	m.counters.addServer(name, watcher.GetCertificate)
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, change := range m.tls {
		change(config)
	}
	config.GetCertificate = watcher.GetCertificate
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listening for the %s: %w; choose another port", name, err)
	}
	return listener, config, nil
}

// filled is the check that everything is in the caches. It does not block; the kubelet probes again.
func (m *servingManager) filled(*http.Request) error {
	for _, informer := range m.informers {
		if !informer.HasSynced() {
			return errors.New("caches are not synced yet")
		}
	}
	return nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return ctrl.GetConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
