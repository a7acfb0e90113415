// Package manager runs what serves a management cluster: the controller with the webhooks, and the runtime hooks. Its
// options are flags of the commands manager and hooks.
package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/webhook"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// Run runs the manager until ctx ends. The flags that were given go to the first line of logs.
func Run(ctx context.Context, o Options, flags *pflag.FlagSet, logs io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	o.Log, o.Level = o.Logging.logger(logs)
	ctrl.SetLogger(o.Log)
	ctx = ctrl.LoggerInto(ctx, o.Log)
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

// New returns a manager with the controller, ready to be started. It uses config.
func New(ctx context.Context, config *rest.Config, o Options) (manager.Manager, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = o.QPS, o.Burst
	scheme, err := world.Scheme()
	if err != nil {
		return nil, err
	}
	defaultSecret, err := ParseDefaultSecret(o.DefaultProxySecret)
	if err != nil {
		return nil, err
	}
	cacheOptions, err := world.CacheOptions(o.Namespace, defaultSecret.Namespace, o.SyncPeriod)
	if err != nil {
		return nil, err
	}
	mgr, err := o.newManager(config, manager.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions,
		PprofBindAddress:              o.ProfilerAddress,
		LeaderElection:                o.Election.Enabled,
		LeaderElectionID:              contract.Domain,
		LeaderElectionNamespace:       o.Election.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaderElectionLabels:          map[string]string{contract.LabelVersion: contract.CurrentBuild().Label()},
		LeaseDuration:                 orDefault(o.Election.LeaseDuration),
		RenewDeadline:                 orDefault(o.Election.RenewDeadline),
		RetryPeriod:                   orDefault(o.Election.RetryPeriod),
		Controller:                    ctrlconfig.Controller{UsePriorityQueue: new(o.enabled(featurePriorityQueue))},
	})
	if err != nil {
		return nil, err
	}
	if err := checkClusterAPI(ctx, mgr.GetAPIReader()); err != nil {
		return nil, err
	}
	if err := addController(ctx, mgr, o); err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck("caches", mgr.filled); err != nil {
		return nil, fmt.Errorf("adding a check of readiness: %w", err)
	}
	return mgr, nil
}

// checkClusterAPI returns an error if the management cluster has a version of Cluster API that is known not to be
// supported. A version that cannot be read is no reason not to start: not everybody installs by clusterctl, and a
// manager for one namespace may not read its inventory.
func checkClusterAPI(ctx context.Context, api client.Reader) error {
	found, err := world.ClusterAPIVersion(ctx, api)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Skipping the check of Cluster API's version", "reason", err.Error())
		return nil
	}
	return contract.SupportsClusterAPI(found) //nolint:wrapcheck // a sentence of its own
}

// orDefault returns nil for 0, which stands for controller-runtime's default.
func orDefault(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}

// fill caches objects from the start of the manager on. Controllers would have that done only when they start: one kind
// after the others, and never in a replica that does not lead, whose webhooks and hooks read them, too.
func (m *servingManager) fill(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		informer, err := m.GetCache().GetInformer(ctx, object, ctrlcache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("caching %T: %w", object, err)
		}
		m.informers = append(m.informers, informer)
	}
	return nil
}

// addController adds the controllers and the webhooks to mgr.
func addController(ctx context.Context, mgr *servingManager, o Options) error {
	installation, err := o.installation(mgr.GetCache())
	if err != nil {
		return err
	}
	if err := mgr.fill(ctx, read(installation)...); err != nil {
		return err
	}
	memory := &world.Memory{
		Cached: mgr.GetCache(), Live: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(),
		Installation: installation, Known: cache.NewExpiring(),
		Now: time.Now, //nolint:forbidigo // the clock enters here
	}
	steps, err := o.extend(ctx, mgr, Core{
		Memory: memory, Scope: o.scope(), Concurrency: o.Concurrency, Now: memory.Now,
	})
	if err != nil {
		return err
	}
	c, err := controller.New(controller.Config{
		Client:      mgr.GetClient(),
		Live:        mgr.GetAPIReader(),
		Memory:      memory,
		Steps:       steps,
		Admission:   o.webhooks(),
		Recorder:    mgr.GetEventRecorder(contract.Name),
		Now:         time.Now, //nolint:forbidigo // the clock enters here
		Scope:       o.scope(),
		Concurrency: o.Concurrency,
		Rendered:    mgr.counters.rendered("controller"),
		Resolved:    mgr.counters.resolved,
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
	if err := mgr.counters.register(); err != nil || !o.webhooks() {
		return err
	}
	serving := ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host: o.WebhookBindAddress, Port: o.WebhookPort, TLSOpts: mgr.tls,
		CertDir: o.WebhookCertDir, CertName: o.WebhookCertName, KeyName: o.WebhookKeyName,
	})
	hooks := &webhook.Webhook{
		Cached:   mgr.GetCache(),
		Live:     mgr.GetAPIReader(),
		Memory:   memory,
		Scope:    o.scope(),
		Now:      time.Now, //nolint:forbidigo // the clock enters here
		Rendered: mgr.counters.rendered("webhook"),
	}
	if err := hooks.Register(serving); err != nil {
		return fmt.Errorf("setting up webhooks: %w", err)
	}
	if err := errors.Join(mgr.Add(serving), mgr.AddReadyzCheck("webhooks", serving.StartedChecker())); err != nil {
		return fmt.Errorf("setting up webhooks: %w", err)
	}
	return nil
}

// read are the objects that decisions read from the manager's cache.
func read(installation settings.Installation) []client.Object {
	objects := []client.Object{
		&clusterv1.Cluster{}, &controlplanev1.KubeadmControlPlane{}, &clusterv1.MachineDeployment{}, &clusterv1.MachinePool{},
		&bootstrapv1.KubeadmConfigTemplate{}, &bootstrapv1.KubeadmConfig{}, &corev1.Secret{}, world.MachineMetadata(),
	}
	if installation.Secret != (types.NamespacedName{}) {
		objects = append(objects, world.NamespaceMetadata())
	}
	return objects
}
