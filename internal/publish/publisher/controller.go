// Package publisher is the controller that carries out what Clusters ask to be published (package publish): it writes
// Secrets beside the Cluster and annotations on it, has objects applied to the workload cluster (package remote), and
// removes all of it. It has a queue and a condition of its own, and never changes a bootstrap object.
package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

// Name is the name of the controller in logs and metrics.
const Name = "cluster-outputs"

// fieldOwner is the field manager of the condition. The one of contract.ConditionProxyConfigured is another: applying
// a condition removes those that the same manager has applied before.
const fieldOwner = contract.Name + "-outputs"

// Config is what a Controller needs.
type Config struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Memory reads proxy Secrets and infrastructure.
	Memory *world.Memory
	// Now is the clock.
	Now func() time.Time
	// Scope is whose Clusters are reconciled.
	Scope settings.Scope
	// Applier applies objects to workload clusters.
	Applier *remote.Applier
	// Concurrency is the maximum number of Clusters reconciled concurrently.
	Concurrency int
}

// Controller publishes the values of Clusters.
type Controller struct {
	Config

	condition controller.Condition
	guarded   *backoff.Client
}

// New returns a Controller. It fails if something is missing in its configuration.
func New(config Config) (*Controller, error) {
	if config.Client == nil || config.Live == nil || config.Memory == nil || config.Now == nil ||
		config.Applier == nil || config.Concurrency < 1 {
		return nil, errors.New("publisher: every field of Config but Scope is required")
	}
	guarded := backoff.New(config.Client, config.Live, config.Now)
	config.Client = guarded
	return &Controller{
		Config:  config,
		guarded: guarded,
		condition: controller.Condition{
			Client: config.Client, Now: config.Now, Type: output.ConditionProxyPublished, Owner: fieldOwner,
		},
	}, nil
}

// SetupWithManager registers the controller and its watches. They are on objects that the manager caches anyway.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	find := world.Clusters{Client: c.Client, Installation: c.Memory.Installation.Secret}
	changed := builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&clusterv1.Cluster{}, builder.WithPredicates(ofConcerned())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(ofOutput), changed).
		Watches(&corev1.Secret{}, c.enqueue(ofOutputName), builder.WithPredicates(ofExistence[client.Object]())).
		Watches(&controlplanev1.KubeadmControlPlane{}, c.enqueue(find.OfControlPlane),
			builder.WithPredicates(ofVersions())).
		Watches(&corev1.Secret{}, world.EnqueueMany(c.concerned(find.OfProxySecret)), changed).
		WithOptions(ctrlcontroller.Options{MaxConcurrentReconciles: c.Concurrency})
	if c.Memory.Installation.Secret != (types.NamespacedName{}) {
		b = b.Watches(world.NamespaceMetadata(), c.enqueue(find.OfNamespace),
			builder.OnlyMetadata, builder.WithPredicates(predicate.LabelChangedPredicate{}))
	}
	return b.Complete(reconcile.AsReconciler(mgr.GetClient(), c))
}

// isConcerned reports whether a Cluster asks for something, or shows that something may be left of what it asked for.
func isConcerned(cluster client.Object) bool {
	annotations := cluster.GetAnnotations()
	if annotations[output.AnnotationPublish] != "" || output.IsWritten(annotations) ||
		annotations[output.AnnotationApplied] != "" {
		return true
	}
	typed, ok := cluster.(*clusterv1.Cluster)
	return ok && controller.Condition{Type: output.ConditionProxyPublished}.IsOn(typed)
}

// ofConcerned passes the events of Clusters that are concerned, or were before.
func ofConcerned() predicate.Funcs {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isConcerned(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return isConcerned(e.ObjectOld) || isConcerned(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// ofVersions passes the events of control planes by which the version that they run changes.
func ofVersions() predicate.Funcs {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return versionOf(e.ObjectOld) != versionOf(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// versionOf returns the Kubernetes version that a whole control plane runs, or "" if it is not known.
func versionOf(object client.Object) string {
	if controlPlane, ok := object.(*controlplanev1.KubeadmControlPlane); ok {
		return controlPlane.Status.Version //nolint:staticcheck // Cluster API v1.13 has no status.versions
	}
	return ""
}

// ofOutputName finds the Clusters that may want a Secret of this name.
func ofOutputName(_ context.Context, secret client.Object) []reconcile.Request {
	clusters := output.ClustersOf(secret.GetName())
	requests := make([]reconcile.Request, 0, len(clusters))
	for _, cluster := range clusters {
		requests = append(requests, reconcile.Request{
			NamespacedName: types.NamespacedName{Namespace: secret.GetNamespace(), Name: cluster},
		})
	}
	return requests
}

// ofExistence passes the events by which a name is taken or free again.
func ofExistence[T any]() predicate.TypedFuncs[T] {
	return predicate.TypedFuncs[T]{UpdateFunc: func(event.TypedUpdateEvent[T]) bool { return false }}
}

// enqueue is the handler that enqueues the Clusters of an object, as far as they are concerned.
func (c *Controller) enqueue(clusters handler.MapFunc) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(c.concerned(clusters))
}

// concerned returns the Clusters of an object that are concerned.
func (c *Controller) concerned(clusters handler.MapFunc) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		var requests []reconcile.Request
		for _, request := range clusters(ctx, object) {
			cluster := &clusterv1.Cluster{}
			if err := c.Client.Get(ctx, request.NamespacedName, cluster); err == nil && isConcerned(cluster) {
				requests = append(requests, request)
			}
		}
		return requests
	}
}

// outputs returns the Secrets of outputs of a Cluster by name. They are the objects of the cache.
func (c *Controller) outputs(ctx context.Context, cluster *clusterv1.Cluster) (map[string]*corev1.Secret, error) {
	var secrets corev1.SecretList
	if err := c.Client.List(ctx, &secrets, client.InNamespace(cluster.Namespace),
		client.MatchingFields{world.IndexOutputs: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Secrets of outputs: %w", err)
	}
	byName := map[string]*corev1.Secret{}
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		byName[secret.Name] = secret
	}
	return byName, nil
}

// ofOutput finds the Cluster that a Secret of an output was generated for.
func ofOutput(_ context.Context, object client.Object) []ctrl.Request {
	if !world.IsOutput(object) || world.ClusterOf(object) == "" {
		return nil
	}
	name := client.ObjectKey{Namespace: object.GetNamespace(), Name: world.ClusterOf(object)}
	return []ctrl.Request{{NamespacedName: name}}
}
