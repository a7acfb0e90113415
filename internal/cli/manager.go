package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/caches"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/server"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/webhook"
)

// ManagerOptions are the options of the manager.
type ManagerOptions struct {
	// Kubeconfig is a kubeconfig file; empty means the Pod's service account.
	Kubeconfig string
	// Namespace limits the manager to one namespace; empty means all.
	Namespace string
	// DefaultProxySecret is the installation-wide proxy Secret as namespace/name; empty means none.
	DefaultProxySecret string
	// DefaultProxyNamespaces is the label selector of the namespaces whose Clusters may use its URLs and credentials;
	// empty selects none.
	DefaultProxyNamespaces string
	// LeaderElect elects a leader among replicas.
	LeaderElect bool
	// LeaderElectNamespace is the namespace of the lease; empty means the Pod's own.
	LeaderElectNamespace string
	// Concurrency is the maximum number of Clusters reconciled concurrently.
	Concurrency int
	// SyncPeriod is the interval at which every Cluster is reconciled even if nothing changed.
	SyncPeriod time.Duration
	// QPS and Burst limit requests to the API server.
	QPS   float32
	Burst int
	// HealthAddr and MetricsAddr are listening addresses; "0" disables one.
	HealthAddr, MetricsAddr string
	// MetricsPerCluster adds metrics with the names of Clusters.
	MetricsPerCluster bool
	// PprofAddr is where Go's profiles are served; "0" or "" disables them.
	PprofAddr string
	// WebhookPort is the port on which the webhooks listen; 0 disables them.
	WebhookPort int
	// WebhookBindAddress is the address on which they listen; empty means all.
	WebhookBindAddress string
	// WebhookCertDir is the folder with tls.crt and tls.key of the webhooks, which are read again when they change.
	// Empty disables the webhooks.
	WebhookCertDir string
	// Hooks configure where the runtime hooks are served; without a CertDir they are disabled.
	Hooks HookOptions
	// HoldClusterCreate is how long the creation of a Cluster with a ClusterClass may wait for its proxy Secret; 0
	// disables the wait.
	HoldClusterCreate time.Duration
	// Log receives the manager's logs.
	Log logr.Logger
	// Verbosity is the log level, 0 to 5.
	Verbosity int
}

// webhooks reports whether the options enable the webhooks.
func (o ManagerOptions) webhooks() bool { return o.WebhookPort != 0 && o.WebhookCertDir != "" }

// hooks reports whether the options enable the runtime hooks.
func (o ManagerOptions) hooks() bool { return o.Hooks.Port != 0 && o.Hooks.CertDir != "" }

func newManager(streams Streams) *cobra.Command {
	var o ManagerOptions
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the controller in a management cluster",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runManager(untilSignal(cmd.Context()), o, streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to the Pod's service account")
	f.StringVar(&o.Namespace, "namespace", "",
		"serve only the Clusters of this namespace, in the controller, the webhooks and the hooks; defaults to all")
	f.StringVar(&o.DefaultProxySecret, "default-proxy-secret", "", "installation-wide proxy Secret as namespace/name; "+
		"its noProxy is merged into every Cluster's, and it serves Clusters without their own Secret in the namespaces of "+
		"--default-proxy-namespaces")
	f.StringVar(&o.DefaultProxyNamespaces, "default-proxy-namespaces", contract.LabelDefaultProxy+"="+
		contract.DefaultProxyAllowed, "label selector of the namespaces whose Clusters may use the URLs and credentials of "+
		"--default-proxy-secret, and whose readers of Secrets can therefore read them; empty selects none")
	f.BoolVar(&o.LeaderElect, "leader-elect", false, "elect a leader among replicas")
	f.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", "", "namespace of the lease; defaults to the Pod's own")
	f.IntVar(&o.Concurrency, "concurrency", 10, "maximum number of Clusters reconciled concurrently")
	f.DurationVar(&o.SyncPeriod, "sync-period", 10*time.Minute,
		"interval at which every Cluster is reconciled even if nothing changed")
	f.Float32Var(&o.QPS, "kube-api-qps", 100, "requests per second to the API server")
	f.IntVar(&o.Burst, "kube-api-burst", 200, "burst of requests to the API server")
	f.StringVar(&o.HealthAddr, "health-addr", ":8081", "address of /healthz and /readyz; 0 disables it")
	f.StringVar(&o.MetricsAddr, "metrics-addr", "0", "address of /metrics; 0 disables it")
	f.BoolVar(&o.MetricsPerCluster, "metrics-per-cluster", false,
		"add metrics with the names of Clusters, one or more for each Cluster")
	f.StringVar(&o.PprofAddr, "pprof-addr", "0", "address of /debug/pprof, Go's profiles; 0 disables it")
	f.IntVar(&o.WebhookPort, "webhook-port", 9443, "port of the webhooks; 0 disables them")
	f.StringVar(&o.WebhookBindAddress, "webhook-bind-address", "", "address on which the webhooks listen; defaults to all")
	f.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "",
		"folder with tls.crt and tls.key of the webhooks; without it there are none")
	f.IntVar(&o.Hooks.Port, "hook-port", 9444, "port of the runtime hooks; 0 disables them")
	f.StringVar(&o.Hooks.BindAddress, "hook-bind-address", "",
		"address on which the runtime hooks listen; defaults to all")
	f.StringVar(&o.Hooks.CertDir, "hook-cert-dir", "",
		"folder with tls.crt and tls.key of the runtime hooks; without it there are none")
	f.StringVar(&o.Hooks.ClientCAName, "hook-client-ca-name", "",
		"file in that folder with the CA certificates that client certificates of the runtime hooks "+
			"must be signed by; by default none is required")
	f.DurationVar(&o.HoldClusterCreate, "hold-cluster-create", time.Hour,
		"how long the creation of a Cluster with a ClusterClass waits for its proxy Secret; 0 disables the wait")
	f.IntVarP(&o.Verbosity, "v", "v", 2, "log level, 0 to 5")
	return cmd
}

func runManager(ctx context.Context, o ManagerOptions, streams Streams) error {
	if err := o.check(); err != nil {
		return err
	}
	config, err := restConfig(o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading kubeconfig: %w", err)
	}
	log := newLogger(o.Verbosity, streams.Err)
	ctrl.SetLogger(log)
	ctx = ctrl.LoggerInto(ctx, log)
	o.Log = log
	mgr, err := NewManager(ctx, config, o)
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running manager: %w", err)
	}
	return nil
}

// shutdownTime is how long the manager may take to end its controller and its caches before it gives up the lease. What
// its servers still answer may take server.DrainTime, from the same moment on.
const shutdownTime = 15 * time.Second

// drainedManager gives up the lease before it waits for its servers: another replica leads while they answer.
type drainedManager struct {
	manager.Manager

	servers []interface{ Drain() }
}

// Start implements manager.Manager.
func (m *drainedManager) Start(ctx context.Context) error {
	err := m.Manager.Start(ctx)
	for _, server := range m.servers {
		server.Drain()
	}
	return err
}

// NewManager returns a manager with the controller, ready to be started. It uses config.
func NewManager(ctx context.Context, config *rest.Config, o ManagerOptions) (manager.Manager, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = o.QPS, o.Burst
	scheme, err := caches.NewScheme()
	if err != nil {
		return nil, err
	}
	cacheOptions, err := caches.Options(o.Namespace, o.SyncPeriod)
	if err != nil {
		return nil, err
	}
	options := manager.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions,
		Logger:                        o.Log,
		HealthProbeBindAddress:        o.HealthAddr,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddr},
		PprofBindAddress:              o.PprofAddr,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              contract.Domain,
		LeaderElectionNamespace:       o.LeaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(shutdownTime),
	}
	drained := &drainedManager{}
	if o.webhooks() {
		serving := webhookServer(o)
		drained.servers = append(drained.servers, serving)
		options.WebhookServer = serving
	}
	mgr, err := manager.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("setting up manager: %w", err)
	}
	drained.Manager = mgr
	if err := addController(ctx, drained, o); err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr.GetCache())); err != nil {
		return nil, fmt.Errorf("adding ready check: %w", err)
	}
	return drained, nil
}

// cachesSynced is ready when the caches are synced.
func cachesSynced(c cache.Cache) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("caches are not synced yet")
		}
		return nil
	}
}

// addController adds the controller, its cache of proxy Secrets and the webhooks to mgr.
func addController(ctx context.Context, mgr *drainedManager, o ManagerOptions) error {
	installation, err := o.installation(mgr.GetCache())
	if err != nil {
		return err
	}
	secretOptions, err := caches.ProxySecretOptions(o.Namespace, installation.Secret.Namespace, mgr.GetScheme())
	if err != nil {
		return err
	}
	proxySecrets, err := cache.New(mgr.GetConfig(), secretOptions)
	if err != nil {
		return fmt.Errorf("setting up cache of proxy Secrets: %w", err)
	}
	if err := mgr.Add(proxySecrets); err != nil {
		return fmt.Errorf("adding cache of proxy Secrets: %w", err)
	}
	secretNames, err := newSecretNames(ctx, mgr, o.Namespace, installation.Secret.Namespace)
	if err != nil {
		return err
	}
	infrastructure := &lookup.Infrastructure{Live: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(), Now: time.Now} //nolint:forbidigo // the clock enters here
	clusters := &lookup.InfrastructureClusters{
		Cached: mgr.GetCache(), Live: mgr.GetAPIReader(),
		Mapper: mgr.GetRESTMapper(),
	}
	absences := &lookup.Absences{Now: time.Now, Names: secretNames} //nolint:forbidigo // as above
	c, err := controller.New(controller.Config{
		Client:         mgr.GetClient(),
		Live:           mgr.GetAPIReader(),
		ProxySecrets:   proxySecrets,
		SecretNames:    secretNames,
		Infrastructure: infrastructure,

		InfrastructureClusters: clusters,

		Absences:     absences,
		Admission:    o.webhooks(),
		Recorder:     mgr.GetEventRecorder(contract.Name),
		Now:          time.Now, //nolint:forbidigo // the clock enters here
		Installation: installation,
		Concurrency:  o.Concurrency,
	})
	if err != nil {
		return fmt.Errorf("setting up controller: %w", err)
	}
	if err := c.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("setting up controller: %w", err)
	}
	if err := metrics.Registry.Register(c.Metrics(o.MetricsPerCluster)); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if o.hooks() {
		if err := addHooks(mgr, o, proxySecrets, installation, absences, clusters); err != nil {
			return err
		}
	}
	if !o.webhooks() {
		return nil
	}
	serving := mgr.GetWebhookServer()
	hooks := &webhook.Webhook{
		Cached:         mgr.GetCache(),
		Live:           mgr.GetAPIReader(),
		Secrets:        lookup.Secrets{Watched: proxySecrets, Live: mgr.GetAPIReader()},
		Infrastructure: infrastructure,

		InfrastructureClusters: clusters,

		Absences:     absences,
		Installation: installation,
		Namespace:    o.Namespace,
		Now:          time.Now, //nolint:forbidigo // the clock enters here
	}
	if err := hooks.Register(serving); err != nil {
		return fmt.Errorf("setting up webhooks: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhooks", serving.StartedChecker()); err != nil {
		return fmt.Errorf("adding ready check: %w", err)
	}
	return nil
}

// newSecretNames adds the cache of the names of Secrets to mgr.
func newSecretNames(ctx context.Context, mgr *drainedManager, namespace, defaultNamespace string) (cache.Cache, error) {
	options, err := caches.SecretNameOptions(namespace, defaultNamespace, mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	names, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("setting up cache of names of Secrets: %w", err)
	}
	if _, err := names.GetInformer(ctx, lookup.SecretMetadata(), cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watching names of Secrets: %w", err)
	}
	if err := mgr.Add(names); err != nil {
		return nil, fmt.Errorf("adding cache of names of Secrets: %w", err)
	}
	return names, nil
}

// addHooks adds the runtime hooks to mgr. Every replica serves them, not only the leader.
func addHooks(mgr *drainedManager, o ManagerOptions, proxySecrets cache.Cache, installation resolve.Installation,
	absences *lookup.Absences, clusters *lookup.InfrastructureClusters,
) error {
	hooks := &extension.Handlers{
		State: extension.ManagementCluster{
			Cached:   mgr.GetCache(),
			Live:     mgr.GetAPIReader(),
			Absences: absences,
			Resolver: resolve.Resolver{
				Secrets: lookup.Secrets{Watched: proxySecrets, Live: mgr.GetAPIReader()}, Default: installation,
				Infrastructure: clusters,
			},
		},
		MaxWait:   o.HoldClusterCreate,
		Namespace: o.Namespace,
		Now:       time.Now, //nolint:forbidigo // the clock enters here
	}
	serving, err := hooks.NewServer(o.Hooks.server())
	if err != nil {
		return err
	}
	if err := mgr.Add(serving); err != nil {
		return fmt.Errorf("adding the server of hooks: %w", err)
	}
	mgr.servers = append(mgr.servers, serving)
	if err := mgr.AddReadyzCheck("hooks", serving.StartedChecker()); err != nil {
		return fmt.Errorf("adding ready check: %w", err)
	}
	return nil
}

// webhookServer returns the server of the webhooks. API servers call it for every write of a bootstrap object, up to a
// few hundred at once, each over its own connection, and wait 5 s. A review takes about twenty times its size in
// memory.
func webhookServer(o ManagerOptions) *server.Server {
	return server.New(server.Options{
		Host: o.WebhookBindAddress, Port: o.WebhookPort, CertDir: o.WebhookCertDir,
		Limits: server.Limits{
			Connections: 1000, Body: webhook.MaxRequest, AtOnce: 16, Worked: webhook.MaxRequest,
			Time: 5 * time.Second,
		},
	})
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return ctrl.GetConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
