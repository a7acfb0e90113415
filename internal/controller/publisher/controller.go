// Package publisher is the controller that carries out what Clusters ask to be published (package publish): it writes
// Secrets beside the Cluster and annotations on it, has ClusterResourceSets deliver some of the Secrets, and takes all
// of it back. It has a queue and a condition of its own, and never changes a bootstrap object.
package publisher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/caches"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/contest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/owners"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/passes"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/expiring"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
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
	// ProxySecrets is the cache of Secrets with contract.LabelProxySecret.
	ProxySecrets cache.Cache
	// SecretNames is the cache of the metadata of Secrets that are not generated.
	SecretNames cache.Cache
	// InfrastructureClusters reads what Clusters run on.
	InfrastructureClusters *lookup.InfrastructureClusters
	// Absences remembers Secrets that did not exist a moment ago.
	Absences *lookup.Absences
	// Now is the clock.
	Now func() time.Time
	// Scope is whose Clusters are reconciled.
	Scope intent.Scope
	// Installation is the installation-wide proxy Secret, or the zero value.
	Installation resolve.Installation
	// Deliver reports whether ClusterResourceSets deliver. Without it nothing of them is read.
	Deliver bool
	// NodeImage is the image that changes nodes in place; "" if that is not installed.
	NodeImage string
	// Workload deletes in workload clusters what changes nodes in place; nil if that is not installed.
	Workload Workload
	// Concurrency is the maximum number of Clusters reconciled concurrently.
	Concurrency int
}

// Controller publishes the values of Clusters.
type Controller struct {
	Config

	condition report.Condition
	contests  contest.Contests
	parsed    resolve.Parsed
	// cleaned is what workload clusters had when there was nothing to delete in them.
	cleaned expiring.Map[types.UID, string]
}

// New returns a Controller. It fails if something is missing in its configuration.
func New(config Config) (*Controller, error) {
	if config.Client == nil || config.Live == nil || config.ProxySecrets == nil || config.SecretNames == nil ||
		config.InfrastructureClusters == nil || config.Absences == nil || config.Now == nil || config.Concurrency < 1 {
		return nil, errors.New("publisher: every field of Config but Scope, Installation, Deliver, NodeImage and Workload " +
			"is required")
	}
	return &Controller{
		Config: config,
		condition: report.Condition{
			Client: config.Client, Now: config.Now, Type: contract.ConditionProxyPublished, Owner: fieldOwner,
		},
	}, nil
}

// SetupWithManager registers the controller and its watches. They are on objects that the manager caches anyway, except
// those of Deliver.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	find := owners.Finder{Client: c.Client, Installation: c.Installation.Secret}
	changed := builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})
	started := passes.SinceStart[client.Object]()
	b := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&clusterv1.Cluster{}, builder.WithPredicates(ofConcerned())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(owners.OfOutput), changed).
		Watches(&corev1.Secret{}, c.enqueue(ofOutputName), builder.WithPredicates(ofExistence(), started)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.ofFiles),
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{}, started)).
		Watches(&controlplanev1.KubeadmControlPlane{}, c.enqueue(find.OfControlPlane),
			builder.WithPredicates(ofVersions(), started)).
		WatchesRawSource(source.Kind(c.ProxySecrets, &corev1.Secret{},
			passes.EnqueueContent(concerned(c, find.OfProxySecret)), passes.SinceStart[*corev1.Secret]())).
		WatchesRawSource(source.Kind(c.SecretNames, lookup.SecretMetadata(),
			passes.EnqueueExistence(concerned(c, func(ctx context.Context,
				secret *metav1.PartialObjectMetadata,
			) []reconcile.Request {
				return append(find.OfSecretName(ctx, secret), ofOutputName(ctx, secret)...)
			})), passes.SinceStart[*metav1.PartialObjectMetadata]())).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency})
	if c.Installation.Secret != (types.NamespacedName{}) {
		b = b.Watches(lookup.NamespaceMetadata(), c.enqueue(find.OfNamespace),
			builder.OnlyMetadata, builder.WithPredicates(predicate.LabelChangedPredicate{}, started))
	}
	if c.Deliver {
		b = b.Watches(&addonsv1.ClusterResourceSet{}, handler.EnqueueRequestsFromMapFunc(owners.OfOutput), changed).
			Watches(&addonsv1.ClusterResourceSet{}, c.enqueue(ofSetName), builder.WithPredicates(ofExistence())).
			Watches(&addonsv1.ClusterResourceSetBinding{}, c.enqueue(ofBinding), changed)
	}
	return b.Complete(reconcile.AsReconciler(mgr.GetClient(), c))
}

// isConcerned reports whether a Cluster asks for something, or shows that something may be left of what it asked for.
func isConcerned(cluster client.Object) bool {
	annotations := cluster.GetAnnotations()
	if annotations[contract.AnnotationPublish] != "" || publish.IsWritten(annotations) ||
		asksForNodes(cluster) || cluster.GetLabels()[contract.LabelDeliverTo] != "" {
		return true
	}
	typed, ok := cluster.(*clusterv1.Cluster)
	return ok && report.Condition{Type: contract.ConditionProxyPublished}.IsOn(typed)
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

// versionOf returns the Kubernetes version that a whole control plane runs, or "" if it is not known. Cluster API's
// contract for control planes has it in this field, whatever replaces it in this kind.
func versionOf(object client.Object) string {
	if controlPlane, ok := object.(*controlplanev1.KubeadmControlPlane); ok {
		return controlPlane.Status.Version //nolint:staticcheck // see above
	}
	return ""
}

// ofBinding finds the Cluster that Cluster API's record of what it has applied is about.
func ofBinding(_ context.Context, binding client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(binding)}}
}

// ofOutputName finds the Clusters that may want a Secret of this name.
func ofOutputName(_ context.Context, secret client.Object) []reconcile.Request {
	clusters := publish.ClustersOf(secret.GetName())
	requests := make([]reconcile.Request, 0, len(clusters))
	for _, cluster := range clusters {
		requests = append(requests, reconcile.Request{
			NamespacedName: types.NamespacedName{Namespace: secret.GetNamespace(), Name: cluster},
		})
	}
	return requests
}

// ofSetName finds the Cluster that may want a ClusterResourceSet of this name.
func ofSetName(_ context.Context, set client.Object) []reconcile.Request {
	cluster, found := strings.CutSuffix(set.GetName(), contract.DeliverySuffix)
	if !found {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: set.GetNamespace(), Name: cluster}}}
}

// ofExistence passes the events by which a name, whoever the object was generated for, is taken or free again.
func ofExistence() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// enqueue is the handler that enqueues the Clusters of an object, as far as they are concerned.
func (c *Controller) enqueue(clusters handler.MapFunc) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(concerned(c, clusters))
}

// concerned returns the Clusters of an object that are concerned.
func concerned[T any](c *Controller, clusters handler.TypedMapFunc[T, reconcile.Request],
) handler.TypedMapFunc[T, reconcile.Request] {
	return func(ctx context.Context, object T) []reconcile.Request {
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
		client.MatchingFields{caches.IndexOutputs: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Secrets of outputs: %w", err)
	}
	byName := map[string]*corev1.Secret{}
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		byName[secret.Name] = secret
	}
	return byName, nil
}
