package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/caches"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

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
	options := []client.ListOption{client.InNamespace(secret.Namespace), client.MatchingFields{caches.IndexSecret: secret.Name}}
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
		if err := c.Client.List(ctx, list, client.InNamespace(secret.Namespace), client.MatchingFields{caches.IndexSecret: secret.Name}); err != nil {
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

// clustersPatchedFor are the Clusters that a template was patched for.
func (c *Controller) clustersPatchedFor(ctx context.Context, template client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, value := range caches.PatchedFor(template) {
		name, isCluster := caches.ClusterOrSecret(value)
		if !isCluster {
			secret := &corev1.Secret{}
			exists, err := c.reader.Get(ctx, template.GetNamespace(), name, secret)
			if err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Reading generated Secret of KubeadmConfigTemplate")
			}
			if err != nil || !exists {
				continue
			}
			name = secret.Labels[contract.LabelGenerated]
		}
		requests = append(requests, requestFor(template.GetNamespace(), name)...)
	}
	return requests
}

// clustersOfPool returns the Cluster of a pool, and those that its template was patched for.
func (c *Controller) clustersOfPool(ctx context.Context, object client.Object) []reconcile.Request {
	requests := clusterOfPool(ctx, object)
	pool := plan.PoolOf(object)
	if pool.Bootstrap.Kind != plan.KindTemplate {
		return requests
	}
	template := &bootstrapv1.KubeadmConfigTemplate{}
	exists, err := c.reader.Get(ctx, object.GetNamespace(), pool.Bootstrap.Name, template)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reading KubeadmConfigTemplate of MachineDeployment")
	}
	if err != nil || !exists {
		return requests
	}
	return append(requests, c.clustersPatchedFor(ctx, template)...)
}
