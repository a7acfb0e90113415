// Package controller keeps labelled Clusters configured: it writes the generated Secrets, patches the bootstrap objects
// that admission did not patch, removes everything when the label is removed, and reports in one condition on the
// Cluster. Package plan decides what to do.
package controller

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// Name is the name of the controller in logs, metrics and events.
const Name = "cluster-proxy"

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments;machinepools;machines,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusterclasses,verbs=get
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments,verbs=patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigs;kubeadmconfigtemplates,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=*,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=clusterctl.cluster.x-k8s.io,resources=providers,verbs=list

// Config has the dependencies of a Controller.
type Config struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server. It is used for Secrets that no label brings into a cache.
	Live client.Reader
	// Memory reads proxy Secrets and infrastructure.
	Memory *world.Memory
	// Admission reports that webhooks run as well. A running control plane is then updated in the request that rolls
	// it.
	Admission bool
	// Steps are those of other packages, which run in this order once the decisions are applied.
	Steps []Step
	// Recorder emits events.
	Recorder events.EventRecorder
	// Now is the clock.
	Now func() time.Time
	// Scope is whose Clusters are reconciled.
	Scope settings.Scope
	// Rendered counts decisions by outcome, and Resolved lookups of proxy Secrets by reason; nil counts none.
	Rendered, Resolved func(outcome string)
	// Concurrency is the maximum number of Clusters reconciled concurrently. Zero means 10: more gains nothing on a
	// small API server.
	Concurrency int
}

// Step is what another package adds to the passes over Clusters. It runs when bootstrap objects are written and the
// Machines that are behind are known.
type Step interface {
	// Needs reports whether a Cluster without the label may have something left that Run takes away.
	Needs(cluster *clusterv1.Cluster) bool
	// Run runs for each Cluster, whether it is enabled or not.
	Run(ctx context.Context, p *Pass) (Outcome, error)
}

// Controller reconciles the proxy of Clusters.
type Controller struct {
	Config

	// guarded is Client, which counts contested writes.
	guarded  *backoff.Client
	reader   Reader
	writer   *Writer
	reporter *Reporter
}

// New returns a Controller. It fails if something is missing in its configuration.
func New(config Config) (*Controller, error) {
	if config.Client == nil || config.Live == nil || config.Memory == nil || config.Recorder == nil || config.Now == nil {
		return nil, errors.New("controller: Client, Live, Memory, Recorder and Now are required")
	}
	if config.Concurrency == 0 {
		config.Concurrency = 10
	}
	guarded := backoff.New(config.Client, config.Live, config.Now)
	config.Client = guarded
	reporter := &Reporter{Client: config.Client, Recorder: config.Recorder, Now: config.Now}
	return &Controller{
		Config:   config,
		reader:   Reader{Client: config.Client},
		guarded:  guarded,
		writer:   &Writer{Client: guarded, Live: config.Live},
		reporter: reporter,
	}, nil
}

// Metrics returns the metrics of the Clusters that c has reconciled. perCluster adds some with the names of Clusters.
func (c *Controller) Metrics(perCluster bool) prometheus.Collector {
	return Metrics{Reporter: c.reporter, PerCluster: perCluster}
}

// SetupWithManager registers the controller, its watches and its indexes.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := world.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	// A resync enqueues every Cluster once, not once more for each of its objects.
	changed := builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})
	find := world.Clusters{Client: c.Client, Installation: c.Memory.Installation.Secret}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: isNoRecord, DeleteFunc: c.deleted})).
		Watches(&controlplanev1.KubeadmControlPlane{}, handler.EnqueueRequestsFromMapFunc(find.OfControlPlane), changed).
		Watches(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(find.OfPool), changed).
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(find.OfPool), changed).
		Watches(&bootstrapv1.KubeadmConfigTemplate{}, handler.EnqueueRequestsFromMapFunc(find.OfTemplate), changed).
		Watches(&bootstrapv1.KubeadmConfig{}, handler.EnqueueRequestsFromMapFunc(find.OfConfig), changed).
		Watches(world.MachineMetadata(), handler.EnqueueRequestsFromMapFunc(world.ClusterOfLabel), changed).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(world.ClusterOfGeneratedSecret), changed).
		Watches(&corev1.Secret{}, world.EnqueueMany(find.OfProxySecret), changed).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency})
	if c.Memory.Installation.Secret != (types.NamespacedName{}) {
		b = b.Watches(world.NamespaceMetadata(), handler.EnqueueRequestsFromMapFunc(find.OfNamespace),
			builder.OnlyMetadata, builder.WithPredicates(predicate.LabelChangedPredicate{}))
	}
	return b.Complete(reconcile.AsReconciler(mgr.GetClient(), c)) //nolint:wrapcheck // it says what failed
}

// deleted forgets a Cluster that is deleted: one without finalizers is gone without another pass.
func (c *Controller) deleted(e event.DeleteEvent) bool {
	c.forget(e.Object)
	return false
}

// isNoRecord reports whether an update of a Cluster is anything else than the record of a pass, which ends it: nothing
// reads the record to decide. Its removal is something else, and so is a write that changes nothing that is cached: a
// pass that has conflicted with it waits for it.
func isNoRecord(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*clusterv1.Cluster)
	now, isCluster := e.ObjectNew.(*clusterv1.Cluster)
	if !ok || !isCluster {
		return true
	}
	was, is := before.Annotations[contract.AnnotationMachinesBehind], now.Annotations[contract.AnnotationMachinesBehind]
	if was == is || is == "" {
		return true
	}
	before, now = before.DeepCopy(), now.DeepCopy()
	delete(before.Annotations, contract.AnnotationMachinesBehind)
	delete(now.Annotations, contract.AnnotationMachinesBehind)
	before.ResourceVersion, before.ManagedFields, now.ManagedFields = now.ResourceVersion, nil, nil
	return !equality.Semantic.DeepEqual(before, now)
}
