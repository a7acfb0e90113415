// Package manager runs what serves a management cluster: the controller, the webhooks and the runtime hooks. Its
// options are flags of the commands manager and hooks.
package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/caches"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/publisher"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/workload"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/counters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/server"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/webhook"
)

// Run runs the manager until ctx ends. The flags that were given go to the first line of logs.
func Run(ctx context.Context, o Options, flags *pflag.FlagSet, logs io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	log, level := o.Logging.logger(logs)
	ctrl.SetLogger(log)
	ctx = ctrl.LoggerInto(ctx, log)
	o.Log, o.Level = log, level
	logStart(ctx, "manager", flags)
	config, err := restConfig(o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading kubeconfig: %w", err)
	}
	mgr, err := New(ctx, config, o)
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
	checks  readiness
	tls     server.TLS

	counters *counters.Counters
}

// Start implements manager.Manager.
func (m *drainedManager) Start(ctx context.Context) error {
	err := m.Manager.Start(ctx)
	for _, server := range m.servers {
		server.Drain()
	}
	return err
}

// New returns a manager with the controller, ready to be started. It uses config.
func New(ctx context.Context, config *rest.Config, o Options) (manager.Manager, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = o.QPS, o.Burst
	counts := counters.New()
	config.Wrap(counts.Wrap)
	scheme, err := caches.NewScheme()
	if err != nil {
		return nil, err
	}
	cacheOptions, err := caches.Options(o.Namespace, o.SyncPeriod, o.Deliver)
	if err != nil {
		return nil, err
	}
	options := manager.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions,
		Logger:                        o.Log,
		HealthProbeBindAddress:        off,
		Metrics:                       metricsserver.Options{BindAddress: off},
		PprofBindAddress:              o.ProfilerAddress,
		LeaderElection:                o.Election.Enabled,
		LeaderElectionID:              contract.Domain,
		LeaderElectionNamespace:       o.Election.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 orDefault(o.Election.LeaseDuration),
		RenewDeadline:                 orDefault(o.Election.RenewDeadline),
		RetryPeriod:                   orDefault(o.Election.RetryPeriod),
		GracefulShutdownTimeout:       new(shutdownTime),
		Controller:                    ctrlconfig.Controller{UsePriorityQueue: new(o.enabled(featurePriorityQueue))},
	}
	drained := &drainedManager{checks: readiness{}, counters: counts}
	if drained.tls, err = o.TLS.server(); err != nil {
		return nil, err
	}
	if o.webhooks() {
		serving := webhookServer(o, drained.tls, counts)
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
	drained.checks["caches"] = cachesSynced(mgr.GetCache())
	if err := addHealth(ctx, drained, o); err != nil {
		return nil, err
	}
	if err := addDiagnostics(ctx, drained, o); err != nil {
		return nil, err
	}
	return drained, nil
}

// orDefault returns nil for 0, which stands for controller-runtime's default.
func orDefault(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
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
func addController(ctx context.Context, mgr *drainedManager, o Options) error {
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
	var (
		workloads clustercache.ClusterCache
		cleaner   publisher.Workload
	)
	if o.NodeImage != "" {
		if workloads, err = workload.SetupWithManager(ctx, mgr, mgr.GetAPIReader(), o.scope()); err != nil {
			return err
		}
		cleaner = workload.Cleaner{Clients: workloads}
	}
	c, err := controller.New(controller.Config{
		Client:         mgr.GetClient(),
		Live:           mgr.GetAPIReader(),
		ProxySecrets:   proxySecrets,
		SecretNames:    secretNames,
		Infrastructure: infrastructure,

		InfrastructureClusters: clusters,

		Clusters:     workloads,
		Absences:     absences,
		Admission:    o.webhooks(),
		Recorder:     mgr.GetEventRecorder(contract.Name),
		Now:          time.Now, //nolint:forbidigo // the clock enters here
		Installation: installation,
		Scope:        o.scope(),
		Concurrency:  o.Concurrency,
		Counters:     mgr.counters,
	})
	if err != nil {
		return fmt.Errorf("setting up controller: %w", err)
	}
	if err := c.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("setting up controller: %w", err)
	}
	outputs, err := publisher.New(publisher.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), ProxySecrets: proxySecrets, SecretNames: secretNames,
		InfrastructureClusters: clusters, Absences: absences, Installation: installation, Deliver: o.Deliver,
		NodeImage: o.NodeImage, Workload: cleaner, Scope: o.scope(),
		Now: time.Now, Concurrency: o.Concurrency, //nolint:forbidigo // the clock enters here
	})
	if err != nil {
		return fmt.Errorf("setting up controller of outputs: %w", err)
	}
	if err := outputs.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up controller of outputs: %w", err)
	}
	for _, collector := range []prometheus.Collector{c.Metrics(o.MetricsPerCluster), mgr.counters} {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
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
		Scope:        o.scope(),
		Now:          time.Now, //nolint:forbidigo // the clock enters here
		Counters:     mgr.counters,
	}
	if err := hooks.Register(serving); err != nil {
		return fmt.Errorf("setting up webhooks: %w", err)
	}
	mgr.checks["webhooks"] = serving.StartedChecker()
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
func addHooks(mgr *drainedManager, o Options, proxySecrets cache.Cache, installation resolve.Installation,
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
		MaxWait:  o.HoldClusterCreate,
		Scope:    o.scope(),
		Now:      time.Now, //nolint:forbidigo // the clock enters here
		Counters: mgr.counters,
	}
	serving, err := hooks.NewServer(o.Hooks.server(mgr.tls))
	if err != nil {
		return err
	}
	if err := mgr.Add(serving); err != nil {
		return fmt.Errorf("adding the server of hooks: %w", err)
	}
	mgr.servers = append(mgr.servers, serving)
	mgr.checks["hooks"] = serving.StartedChecker()
	return nil
}

// webhookServer returns the server of the webhooks. API servers call it for every write of a bootstrap object, up to a
// few hundred at once, each over its own connection, and wait 5 s. A review takes about twenty times its size in
// memory.
func webhookServer(o Options, security server.TLS, counts *counters.Counters) *server.Server {
	return server.New(server.Options{
		Host: o.WebhookBindAddress, Port: o.WebhookPort, CertDir: o.WebhookCertDir,
		CertName: o.WebhookCertName, KeyName: o.WebhookKeyName, TLS: security,
		Limits: server.Limits{
			Connections: 1000, Body: webhook.MaxRequest, AtOnce: 16, Worked: webhook.MaxRequest,
			Time: 5 * time.Second,
		},
		Counters: counts, Name: "webhooks", Now: time.Now, //nolint:forbidigo // the clock enters here
	})
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return ctrl.GetConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
