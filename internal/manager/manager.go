// Package manager runs what serves a management cluster: the controller with the webhooks, and the runtime hooks. Its
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/caches"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/publisher"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/workload"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/counters"
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
	// informers are those of fill.
	informers []cache.Informer

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
		NewCache:                      caches.New,
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
	drained.checks["caches"] = drained.filled
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

// fill has c cache objects from the start of the manager on. Controllers would have that done only when they start: one
// kind after the others, and never in a replica that does not lead, whose webhooks and hooks read them, too.
func (m *drainedManager) fill(ctx context.Context, c cache.Cache, objects ...client.Object) error {
	for _, object := range objects {
		informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("caching %T: %w", object, err)
		}
		m.informers = append(m.informers, informer)
	}
	return nil
}

// filled is the check that everything is in the caches. It does not block; the kubelet probes again.
func (m *drainedManager) filled(*http.Request) error {
	for _, informer := range m.informers {
		if !informer.HasSynced() {
			return errors.New("caches are not synced yet")
		}
	}
	return nil
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
	proxySecrets, err := mgr.addCache(ctx, secretOptions, &corev1.Secret{})
	if err != nil {
		return err
	}
	nameOptions, err := caches.SecretNameOptions(o.Namespace, installation.Secret.Namespace, mgr.GetScheme())
	if err != nil {
		return err
	}
	secretNames, err := mgr.addCache(ctx, nameOptions, lookup.SecretMetadata())
	if err != nil {
		return err
	}
	if err := mgr.fill(ctx, mgr.GetCache(), read(installation)...); err != nil {
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
		Lease:        o.Election.lease(),
		Concurrency:  o.Concurrency,
		Resyncs:      o.Resyncs,
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

// read are the objects that decisions read from the manager's cache.
func read(installation resolve.Installation) []client.Object {
	objects := []client.Object{
		&clusterv1.Cluster{}, &controlplanev1.KubeadmControlPlane{}, &clusterv1.MachineDeployment{}, &clusterv1.MachinePool{},
		&bootstrapv1.KubeadmConfigTemplate{}, &bootstrapv1.KubeadmConfig{}, &corev1.Secret{}, caches.MachineMetadata(),
	}
	if installation.Secret != (types.NamespacedName{}) {
		objects = append(objects, lookup.NamespaceMetadata())
	}
	return objects
}

// addCache adds a cache of objects to m that is not its own one.
func (m *drainedManager) addCache(ctx context.Context, options cache.Options, object client.Object,
) (cache.Cache, error) {
	options.HTTPClient, options.Mapper = m.GetHTTPClient(), m.GetRESTMapper()
	c, err := cache.New(m.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("setting up a cache of %T: %w", object, err)
	}
	if err := m.fill(ctx, c, object); err != nil {
		return nil, err
	}
	if err := m.Add(ownCache{c}); err != nil {
		return nil, fmt.Errorf("adding a cache of %T: %w", object, err)
	}
	return c, nil
}

// ownCache has a manager start a cache as it does its own: before anything else, whether it leads or not.
type ownCache struct{ cache.Cache }

// GetCache is what a manager knows it by.
func (c ownCache) GetCache() cache.Cache { return c.Cache }

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
