package world

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// Clusters finds the Clusters that a change of an object concerns, and who refers to a bootstrap object.
type Clusters struct {
	// Client reads by the indexes: a cache, or what stands for one.
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

func ofPools(namespace string, pools []plan.Pool) (requests []ctrl.Request) {
	for _, pool := range pools {
		requests = append(requests, requestFor(namespace, pool.Cluster)...)
	}
	return requests
}

// Pools returns the pools that refer to a bootstrap object of a kind, by name.
func (c Clusters) Pools(ctx context.Context, kind, namespace, name string) ([]plan.Pool, error) {
	if name == "" {
		return nil, nil
	}
	list := client.ObjectList(&clusterv1.MachineDeploymentList{})
	if kind == plan.KindConfig {
		list = &clusterv1.MachinePoolList{}
	}
	pools, err := c.pools(ctx, list, client.InNamespace(namespace), client.MatchingFields{IndexBootstrap: name})
	pools = slices.DeleteFunc(pools, func(p plan.Pool) bool { return p.Bootstrap.Kind != kind || bootstrapOf(p) != name })
	slices.SortFunc(pools, func(a, b plan.Pool) int { return strings.Compare(a.String(), b.String()) })
	return pools, err
}

func (c Clusters) pools(ctx context.Context, list client.ObjectList, options ...client.ListOption) (
	pools []plan.Pool, err error,
) {
	if err := c.Client.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if pool, ok := item.(client.Object); ok {
			pools = append(pools, plan.PoolOf(pool))
		}
		return nil
	})
	return pools, err
}

// ByControlPlane returns the Clusters that refer to a KubeadmControlPlane, which gets its label and owner reference
// when Cluster API sees it.
func (c Clusters) ByControlPlane(ctx context.Context, namespace, name string) ([]clusterv1.Cluster, error) {
	clusters, err := c.list(ctx, client.InNamespace(namespace), client.MatchingFields{IndexControlPlane: name})
	return slices.DeleteFunc(clusters, func(cluster clusterv1.Cluster) bool { return !RefersTo(&cluster, name) }), err
}

// RefersTo reports whether a Cluster refers to a KubeadmControlPlane.
func RefersTo(cluster *clusterv1.Cluster, controlPlane string) bool {
	ref := cluster.Spec.ControlPlaneRef
	return ref.Kind == plan.KindControlPlane && ref.Name == controlPlane
}

// list returns the Clusters that options select.
func (c Clusters) list(ctx context.Context, options ...client.ListOption) ([]clusterv1.Cluster, error) {
	var clusters clusterv1.ClusterList
	if err := c.Client.List(ctx, &clusters, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	return clusters.Items, nil
}

// clusters returns requests for the Clusters that options select.
func (c Clusters) clusters(ctx context.Context, options ...client.ListOption) (requests []ctrl.Request) {
	clusters, err := c.list(ctx, options...)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Finding Clusters of a change")
	}
	for i := range clusters {
		requests = append(requests, requestFor(clusters[i].Namespace, clusters[i].Name)...)
	}
	return requests
}

// enabled selects the Clusters with the label.
func enabled() client.ListOption {
	return client.MatchingLabels{contract.LabelEnabled: contract.LabelEnabledValue}
}

// OfControlPlane finds the Cluster by the reference that the Cluster holds.
func (c Clusters) OfControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	return c.clusters(ctx, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{IndexControlPlane: object.GetName()})
}

// OfTemplate finds the Clusters by the pools that refer to the template, and those that it was patched for: a
// KubeadmConfigTemplate has no label, and an owner reference only after Cluster API has seen it.
func (c Clusters) OfTemplate(ctx context.Context, object client.Object) []ctrl.Request {
	requests := append(patchedFor(object), c.ofUsers(ctx, plan.KindTemplate, object)...)
	if plan.IsTopologyOwned(object.GetLabels()) {
		requests = append(requests, ClusterOfLabel(ctx, object)...) // no pool may use it any more
	}
	return requests
}

// OfConfig finds the Clusters by the label that Cluster API sets and by the MachinePools that refer to the
// KubeadmConfig, which a user creates without a label.
func (c Clusters) OfConfig(ctx context.Context, object client.Object) []ctrl.Request {
	return append(ClusterOfLabel(ctx, object), c.ofUsers(ctx, plan.KindConfig, object)...)
}

func (c Clusters) ofUsers(ctx context.Context, kind string, object client.Object) []ctrl.Request {
	pools, err := c.Pools(ctx, kind, object.GetNamespace(), object.GetName())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Finding pools of "+kind)
	}
	return ofPools(object.GetNamespace(), pools)
}

// OfNamespace finds the Clusters for which the labels of their Namespace decide about the installation-wide
// Secret.
func (c Clusters) OfNamespace(ctx context.Context, namespace client.Object) []ctrl.Request {
	return c.clusters(ctx, client.InNamespace(namespace.GetName()), enabled())
}

// OfProxySecret finds the Clusters that may use a proxy Secret, for themselves or for a pool.
func (c Clusters) OfProxySecret(ctx context.Context, secret client.Object) []ctrl.Request {
	if ClusterOf(secret) != "" {
		return nil // a generated one
	}
	namespace, name := secret.GetNamespace(), secret.GetName()
	options := []client.ListOption{
		enabled(), client.InNamespace(namespace),
		client.MatchingFields{IndexSecret: name},
	}
	if (types.NamespacedName{Namespace: namespace, Name: name}) == c.Installation {
		options = options[:1]
	}
	requests := c.clusters(ctx, options...)
	if cluster, found := strings.CutSuffix(name, contract.ClusterSecretSuffix); found {
		requests = append(requests, requestFor(namespace, cluster)...)
	}
	for _, list := range []client.ObjectList{&clusterv1.MachineDeploymentList{}, &clusterv1.MachinePoolList{}} {
		pools, err := c.pools(ctx, list, client.InNamespace(namespace), client.MatchingFields{IndexSecret: name})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Finding pools of Secret")
		}
		requests = append(requests, ofPools(namespace, pools)...)
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
	pool := plan.PoolOf(object)
	requests := requestFor(object.GetNamespace(), pool.Cluster)
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
