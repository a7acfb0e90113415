// Package controller keeps labelled Clusters configured: it writes the generated Secrets, patches the bootstrap
// objects that admission did not patch, takes everything out again when the label goes, and reports in one
// condition on the Cluster. Decisions are made in packages patch and source; this package reads and writes.
package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/expiring"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// Name is the name of the controller in logs, metrics and events.
const Name = "cluster-proxy"

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments;machinepools;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments,verbs=patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigs;kubeadmconfigtemplates,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=*,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Controller reconciles the proxy of Clusters.
type Controller struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server. It is used for Secrets that no label brings into a cache.
	Live client.Reader
	// ProxySecrets is the cache of Secrets with contract.LabelProxySecret.
	ProxySecrets cache.Cache
	// Infrastructure tells Windows pools by their machine templates.
	Infrastructure *lookup.Infrastructure
	// Admission reports that webhooks run as well. A running control plane is then brought up to date in the request
	// that rolls it.
	Admission bool
	// Recorder emits events.
	Recorder events.EventRecorder
	// Absences remembers Secrets that did not exist a moment ago.
	Absences *lookup.Absences
	// Now is the clock.
	Now func() time.Time
	// Installation is the installation-wide proxy Secret, or the zero value.
	Installation resolve.Installation
	// Concurrency is how many Clusters are reconciled at once. Zero means 10: more gains nothing on a small API server.
	Concurrency int

	contests contests
	// written are the versions of bootstrap objects that this process has written last, by UID.
	written expiring.Map[types.UID, string]
	news    news
	made    madeTimes
}

// SetupWithManager registers the controller, its watches and its indexes.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if c.Client == nil || c.Live == nil || c.ProxySecrets == nil || c.Infrastructure == nil || c.Recorder == nil || c.Now == nil {
		return errors.New("controller: Client, Live, ProxySecrets, Infrastructure, Recorder and Now are required")
	}
	if c.Concurrency == 0 {
		c.Concurrency = 10
	}
	if err := SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	// A resync brings every Cluster back once, not once more for each object that belongs to it.
	changed := builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&clusterv1.Cluster{}).
		Watches(&controlplanev1.KubeadmControlPlane{}, handler.EnqueueRequestsFromMapFunc(c.clustersOfControlPlane), changed).
		Watches(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(c.clustersOfPool), changed).
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(clusterOfPool), changed).
		Watches(&bootstrapv1.KubeadmConfigTemplate{}, handler.EnqueueRequestsFromMapFunc(c.clustersOfTemplate), changed).
		Watches(&bootstrapv1.KubeadmConfig{}, handler.EnqueueRequestsFromMapFunc(c.clustersOfConfig), changed).
		Watches(machineMetadata(), handler.EnqueueRequestsFromMapFunc(clusterOfLabel), changed).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(clusterOfGeneratedSecret), changed).
		WatchesRawSource(source.Kind(c.ProxySecrets, &corev1.Secret{},
			handler.TypedEnqueueRequestsFromMapFunc(c.clustersOfProxySecret), predicate.TypedResourceVersionChangedPredicate[*corev1.Secret]{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency})
	if c.Installation.Secret != (types.NamespacedName{}) {
		b = b.Watches(lookup.NamespaceMetadata(), handler.EnqueueRequestsFromMapFunc(c.clustersOfNamespace),
			builder.OnlyMetadata, builder.WithPredicates(predicate.LabelChangedPredicate{}))
	}
	return b.Complete(reconcile.AsReconciler(mgr.GetClient(), c))
}

func requestFor(namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

func clusterOfLabel(_ context.Context, object client.Object) []reconcile.Request {
	return requestFor(object.GetNamespace(), object.GetLabels()[clusterv1.ClusterNameLabel])
}

func clusterOfGeneratedSecret(_ context.Context, object client.Object) []reconcile.Request {
	return requestFor(object.GetNamespace(), object.GetLabels()[contract.LabelGenerated])
}

func clusterOfPool(_ context.Context, object client.Object) []reconcile.Request {
	switch pool := object.(type) {
	case *clusterv1.MachineDeployment:
		return requestFor(pool.Namespace, pool.Spec.ClusterName)
	case *clusterv1.MachinePool:
		return requestFor(pool.Namespace, pool.Spec.ClusterName)
	}
	return nil
}

// clustersOfControlPlane finds the Cluster by the reference that the Cluster holds: the label and the owner
// reference of a KubeadmControlPlane appear only after Cluster API has seen it.
func (c *Controller) clustersOfControlPlane(ctx context.Context, object client.Object) []reconcile.Request {
	var clusters clusterv1.ClusterList
	if err := c.Client.List(ctx, &clusters, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{lookup.IndexControlPlane: object.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Clusters of KubeadmControlPlane")
		return nil
	}
	var requests []reconcile.Request
	for i := range clusters.Items {
		requests = append(requests, requestFor(clusters.Items[i].Namespace, clusters.Items[i].Name)...)
	}
	return requests
}

// clustersOfTemplate finds the Clusters by the pools that refer to the template, and those that it was patched for: a
// KubeadmConfigTemplate has no label, and an owner reference only after Cluster API has seen it.
func (c *Controller) clustersOfTemplate(ctx context.Context, object client.Object) []reconcile.Request {
	var pools clusterv1.MachineDeploymentList
	if err := c.Client.List(ctx, &pools, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{lookup.IndexBootstrap: object.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MachineDeployments of KubeadmConfigTemplate")
		return nil
	}
	requests := c.clustersPatchedFor(ctx, object)
	if plan.IsTopologyOwned(object.GetLabels()) {
		requests = append(requests, clusterOfLabel(ctx, object)...) // no pool may use it any more
	}
	for i := range pools.Items {
		requests = append(requests, requestFor(pools.Items[i].Namespace, pools.Items[i].Spec.ClusterName)...)
	}
	return requests
}

// clustersOfConfig finds the Clusters by the label that Cluster API sets and by the MachinePools that refer to the
// KubeadmConfig, which a user creates without a label.
func (c *Controller) clustersOfConfig(ctx context.Context, object client.Object) []reconcile.Request {
	requests := clusterOfLabel(ctx, object)
	var pools clusterv1.MachinePoolList
	if err := c.Client.List(ctx, &pools, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{lookup.IndexBootstrap: object.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MachinePools of KubeadmConfig")
		return requests
	}
	for i := range pools.Items {
		requests = append(requests, clusterOfPool(ctx, &pools.Items[i])...)
	}
	return requests
}

// clustersOfNamespace finds the Clusters for which the labels of their Namespace decide about the installation-wide
// Secret.
func (c *Controller) clustersOfNamespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	var clusters clusterv1.ClusterList
	if err := c.Client.List(ctx, &clusters, client.InNamespace(namespace.GetName()),
		client.MatchingLabels{contract.LabelEnabled: contract.LabelEnabledValue}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Clusters of Namespace")
		return nil
	}
	var requests []reconcile.Request
	for i := range clusters.Items {
		requests = append(requests, requestFor(clusters.Items[i].Namespace, clusters.Items[i].Name)...)
	}
	return requests
}

func (c *Controller) clustersOfProxySecret(ctx context.Context, secret *corev1.Secret) []reconcile.Request {
	options := []client.ListOption{client.InNamespace(secret.Namespace), client.MatchingFields{indexSecret: secret.Name}}
	if (types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}) == c.Installation.Secret {
		options = []client.ListOption{client.MatchingLabels{contract.LabelEnabled: contract.LabelEnabledValue}}
	}
	var clusters clusterv1.ClusterList
	if err := c.Client.List(ctx, &clusters, options...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Clusters of Secret")
		return nil
	}
	var requests []reconcile.Request
	for i := range clusters.Items {
		if intent.IsEnabled(clusters.Items[i].Labels) {
			requests = append(requests, requestFor(clusters.Items[i].Namespace, clusters.Items[i].Name)...)
		}
	}
	for _, list := range []client.ObjectList{&clusterv1.MachineDeploymentList{}, &clusterv1.MachinePoolList{}} {
		if err := c.Client.List(ctx, list, client.InNamespace(secret.Namespace), client.MatchingFields{indexSecret: secret.Name}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing pools of Secret")
			continue
		}
		switch pools := list.(type) {
		case *clusterv1.MachineDeploymentList:
			for i := range pools.Items {
				requests = append(requests, clusterOfPool(ctx, &pools.Items[i])...)
			}
		case *clusterv1.MachinePoolList:
			for i := range pools.Items {
				requests = append(requests, clusterOfPool(ctx, &pools.Items[i])...)
			}
		}
	}
	return requests
}
