package world

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// Clusters finds the Clusters that a change of an object concerns.
type Clusters struct {
	// Client reads from the cache.
	Client client.Reader
	// Installation is the installation-wide proxy Secret, or the zero value.
	Installation types.NamespacedName
}

func requestFor(namespace, name string) []ctrl.Request {
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// ClusterOfLabel finds the Cluster that Cluster API's label names.
func ClusterOfLabel(_ context.Context, object client.Object) []ctrl.Request {
	return requestFor(object.GetNamespace(), object.GetLabels()[clusterv1.ClusterNameLabel])
}

// ClusterOfGeneratedSecret finds the Cluster that a Secret for nodes was generated for.
func ClusterOfGeneratedSecret(_ context.Context, object client.Object) []ctrl.Request {
	if IsOutput(object) {
		return nil
	}
	return requestFor(object.GetNamespace(), ClusterOf(object))
}

// ClusterOfOutput finds the Cluster that a Secret of an output was generated for.
func ClusterOfOutput(_ context.Context, object client.Object) []ctrl.Request {
	if !IsOutput(object) {
		return nil
	}
	return requestFor(object.GetNamespace(), ClusterOf(object))
}

func ofPool(_ context.Context, object client.Object) []ctrl.Request {
	switch pool := object.(type) {
	case *clusterv1.MachineDeployment:
		return requestFor(pool.Namespace, pool.Spec.ClusterName)
	case *clusterv1.MachinePool:
		return requestFor(pool.Namespace, pool.Spec.ClusterName)
	}
	return nil
}

// clusters lists the Clusters that options select. of is the kind of the object for which they are looked up.
func (c Clusters) clusters(ctx context.Context, of string, options ...client.ListOption) []ctrl.Request {
	var clusters clusterv1.ClusterList
	if err := c.Client.List(ctx, &clusters, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Clusters of "+of)
		return nil
	}
	var requests []ctrl.Request
	for i := range clusters.Items {
		requests = append(requests, requestFor(clusters.Items[i].Namespace, clusters.Items[i].Name)...)
	}
	return requests
}

// enabled selects the Clusters with the label.
func enabled() client.ListOption {
	return client.MatchingLabels{contract.LabelEnabled: contract.LabelEnabledValue}
}

// OfControlPlane finds the Cluster by the reference that the Cluster holds: the label and the owner
// reference of a KubeadmControlPlane appear only after Cluster API has seen it.
func (c Clusters) OfControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	return c.clusters(ctx, "KubeadmControlPlane", client.InNamespace(object.GetNamespace()),
		client.MatchingFields{IndexControlPlane: object.GetName()})
}

// OfTemplate finds the Clusters by the pools that refer to the template, and those that it was patched for: a
// KubeadmConfigTemplate has no label, and an owner reference only after Cluster API has seen it.
func (c Clusters) OfTemplate(ctx context.Context, object client.Object) []ctrl.Request {
	var pools clusterv1.MachineDeploymentList
	if err := c.Client.List(ctx, &pools, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{IndexBootstrap: object.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MachineDeployments of KubeadmConfigTemplate")
		return nil
	}
	requests := patchedFor(object)
	if plan.IsTopologyOwned(object.GetLabels()) {
		requests = append(requests, ClusterOfLabel(ctx, object)...) // no pool may use it any more
	}
	for i := range pools.Items {
		requests = append(requests, requestFor(pools.Items[i].Namespace, pools.Items[i].Spec.ClusterName)...)
	}
	return requests
}

// OfConfig finds the Clusters by the label that Cluster API sets and by the MachinePools that refer to the
// KubeadmConfig, which a user creates without a label.
func (c Clusters) OfConfig(ctx context.Context, object client.Object) []ctrl.Request {
	requests := ClusterOfLabel(ctx, object)
	var pools clusterv1.MachinePoolList
	if err := c.Client.List(ctx, &pools, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{IndexBootstrap: object.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MachinePools of KubeadmConfig")
		return requests
	}
	for i := range pools.Items {
		requests = append(requests, ofPool(ctx, &pools.Items[i])...)
	}
	return requests
}

// OfNamespace finds the Clusters for which the labels of their Namespace decide about the installation-wide
// Secret.
func (c Clusters) OfNamespace(ctx context.Context, namespace client.Object) []ctrl.Request {
	return c.clusters(ctx, "Namespace", client.InNamespace(namespace.GetName()), enabled())
}

// OfProxySecret finds the Clusters that may use a proxy Secret, for themselves or for a pool.
func (c Clusters) OfProxySecret(ctx context.Context, secret *corev1.Secret) []ctrl.Request {
	namespace, name := secret.Namespace, secret.Name
	options := []client.ListOption{
		enabled(), client.InNamespace(namespace),
		client.MatchingFields{IndexSecret: name},
	}
	if (types.NamespacedName{Namespace: namespace, Name: name}) == c.Installation {
		options = options[:1]
	}
	requests := c.clusters(ctx, "Secret", options...)
	if cluster, found := strings.CutSuffix(name, contract.ClusterSecretSuffix); found {
		requests = append(requests, requestFor(namespace, cluster)...)
	}
	for _, list := range []client.ObjectList{&clusterv1.MachineDeploymentList{}, &clusterv1.MachinePoolList{}} {
		if err := c.Client.List(ctx, list, client.InNamespace(namespace),
			client.MatchingFields{IndexSecret: name}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing pools of Secret")
			continue
		}
		switch pools := list.(type) {
		case *clusterv1.MachineDeploymentList:
			for i := range pools.Items {
				requests = append(requests, ofPool(ctx, &pools.Items[i])...)
			}
		case *clusterv1.MachinePoolList:
			for i := range pools.Items {
				requests = append(requests, ofPool(ctx, &pools.Items[i])...)
			}
		}
	}
	return requests
}

// patchedFor returns the Clusters that a template was patched for.
func patchedFor(template client.Object) []ctrl.Request {
	names := PatchedFor(template)
	requests := make([]ctrl.Request, 0, len(names))
	for _, name := range names {
		requests = append(requests, requestFor(template.GetNamespace(), name)...)
	}
	return requests
}

// OfPool returns the Cluster of a pool, and those that its template was patched for.
func (c Clusters) OfPool(ctx context.Context, object client.Object) []ctrl.Request {
	requests := ofPool(ctx, object)
	pool := plan.PoolOf(object)
	if pool.Bootstrap.Kind != plan.KindTemplate {
		return requests
	}
	template := &bootstrapv1.KubeadmConfigTemplate{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: pool.Bootstrap.Name}, template)
	if client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reading KubeadmConfigTemplate of MachineDeployment")
	}
	if err != nil {
		return requests
	}
	return append(requests, patchedFor(template)...)
}
