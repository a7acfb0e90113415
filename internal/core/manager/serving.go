package manager

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
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
	return o.Logging.check()
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
