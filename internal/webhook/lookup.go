package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
)

// owner is the Cluster, and the pools, that a bootstrap object belongs to.
type owner struct {
	// cluster is nil if it is not known yet, or if there is none.
	cluster *clusterv1.Cluster
	// pools of the Cluster that use the object.
	pools []plan.Pool
	// foreign is a pool of another Cluster that uses it too, or nil.
	foreign *plan.Pool
}

// owner finds the Cluster of the object. It may be milliseconds old: what the cache does not have is read live.
func (w *Webhook) owner(ctx context.Context, object write) (owner, error) {
	switch object.kind {
	case plan.KindControlPlane:
		cluster, err := w.clusterOfControlPlane(ctx, object)
		return owner{cluster: cluster}, err
	case plan.KindTemplate:
		return w.ownerOfTemplate(ctx, object)
	default:
		return w.ownerOfConfig(ctx, object)
	}
}

// clusterOfControlPlane finds the Cluster that refers to a KubeadmControlPlane. Its own label and owner reference
// appear only after Cluster API has seen it, and do not count if the Cluster refers to another one.
func (w *Webhook) clusterOfControlPlane(ctx context.Context, object write) (*clusterv1.Cluster, error) {
	if object.name == "" {
		return nil, nil //nolint:nilnil // nothing refers to an object without a name
	}
	refers := func(cluster *clusterv1.Cluster) bool {
		ref := cluster.Spec.ControlPlaneRef
		return ref.Kind == plan.KindControlPlane && ref.Name == object.name
	}
	if name := object.clusterName(); name != "" {
		cluster, err := w.cluster(ctx, object.namespace, name)
		if err != nil || cluster == nil || refers(cluster) {
			return cluster, err
		}
	}
	var clusters clusterv1.ClusterList
	err := w.Cached.List(ctx, &clusters, client.InNamespace(object.namespace),
		client.MatchingFields{world.IndexControlPlane: object.name}, client.UnsafeDisableDeepCopy)
	if err != nil || len(clusters.Items) == 0 {
		// A Cluster that the cache does not know yet is new, and a new one matters only with the label. If the namespace has
		// more of these than maxLive, the controller patches what is left out.
		err = w.Live.List(ctx, &clusters, client.InNamespace(object.namespace), client.Limit(maxLive),
			client.MatchingLabels{contract.LabelEnabled: contract.LabelEnabledValue})
	}
	if err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	if i := slices.IndexFunc(clusters.Items, func(c clusterv1.Cluster) bool { return refers(&c) }); i >= 0 {
		return &clusters.Items[i], nil
	}
	return nil, nil //nolint:nilnil // the Cluster does not exist yet
}

// ownerOfTemplate finds the pools that refer to a KubeadmConfigTemplate and their Cluster, else the Cluster that owns
// it.
func (w *Webhook) ownerOfTemplate(ctx context.Context, object write) (owner, error) {
	pools, err := w.pools(ctx, object, &clusterv1.MachineDeploymentList{})
	if err != nil {
		return owner{}, err
	}
	return w.ownerByPools(ctx, object, pools)
}

// ownerOfConfig finds the pool and the Cluster of a KubeadmConfig: by the MachinePool that refers to it, or by the
// labels and owners that Cluster API has written on the KubeadmConfig of a Machine.
func (w *Webhook) ownerOfConfig(ctx context.Context, object write) (owner, error) {
	labels := object.asked.GetLabels()
	deployment, name := labels[clusterv1.MachineDeploymentNameLabel], labels[clusterv1.ClusterNameLabel]
	if deployment == "" && !object.hasOwner("Machine") && !object.hasOwner("MachineSet") {
		pools, err := w.pools(ctx, object, &clusterv1.MachinePoolList{})
		if err != nil || len(pools) > 0 {
			if err != nil {
				return owner{}, err
			}
			return w.ownerByPools(ctx, object, pools)
		}
	}
	if name == "" {
		return owner{}, nil
	}
	cluster, err := w.cluster(ctx, object.namespace, name)
	if err != nil || deployment == "" {
		return owner{cluster: cluster}, err
	}
	md := &clusterv1.MachineDeployment{}
	exists, err := w.get(ctx, client.ObjectKey{Namespace: object.namespace, Name: deployment}, md)
	if err != nil {
		return owner{}, err
	}
	found := owner{cluster: cluster}
	if exists {
		found.pools = []plan.Pool{plan.PoolOf(md)}
	}
	return found, nil
}

// ownerByPools finds the Cluster of pools. Pools of a second one are foreign to the first labelled one by name.
func (w *Webhook) ownerByPools(ctx context.Context, object write, pools []plan.Pool) (owner, error) {
	var found owner
	for _, name := range clusterNames(pools, object.clusterName()) {
		cluster, err := w.cluster(ctx, object.namespace, name)
		if err != nil {
			return owner{}, err
		}
		if cluster != nil && (found.cluster == nil || intent.StateOf(cluster.Labels) > intent.StateOf(found.cluster.Labels)) {
			found.cluster = cluster
		}
	}
	if found.cluster == nil {
		return owner{}, nil
	}
	for _, p := range pools {
		switch {
		case p.Cluster == found.cluster.Name:
			found.pools = append(found.pools, p)
		case found.foreign == nil:
			found.foreign = &p
		}
	}
	return found, nil
}

// clusterNames returns the names of the Clusters of pools in order, or else fallback.
func clusterNames(pools []plan.Pool, fallback string) []string {
	names := make([]string, 0, len(pools))
	for _, p := range pools {
		names = append(names, p.Cluster)
	}
	if len(names) == 0 && fallback != "" {
		return []string{fallback}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxLive bounds how many Clusters or pools of a namespace a request reads from the API server. One is up to 10 kB.
const maxLive = 250

// pools returns the pools of a kind that refer to the object, by name. A pool that the cache does not have is
// milliseconds old, or there is none: the API server is asked, unless the namespace has more pools than maxLive. The
// controller patches what is left out.
func (w *Webhook) pools(ctx context.Context, object write, list client.ObjectList) ([]plan.Pool, error) {
	if object.name == "" {
		return nil, nil
	}
	err := w.Cached.List(ctx, list, client.InNamespace(object.namespace),
		client.MatchingFields{world.IndexBootstrap: object.name})
	pools := poolsOf(list, object)
	if err != nil || len(pools) == 0 {
		if err = w.Live.List(ctx, list, client.InNamespace(object.namespace), client.Limit(maxLive)); err != nil {
			return nil, fmt.Errorf("listing pools: %w", err)
		}
		if list.GetContinue() != "" {
			return nil, nil // a partial list is not conclusive
		}
		pools = poolsOf(list, object)
	}
	slices.SortFunc(pools, func(a, b plan.Pool) int { return strings.Compare(a.Object, b.Object) })
	return pools, nil
}

// poolsOf returns the pools of list that refer to the object.
func poolsOf(list client.ObjectList, object write) []plan.Pool {
	var pools []plan.Pool
	add := func(p plan.Pool) {
		if p.Bootstrap.Kind == object.kind && p.Bootstrap.Name == object.name {
			pools = append(pools, p)
		}
	}
	switch typed := list.(type) {
	case *clusterv1.MachineDeploymentList:
		for i := range typed.Items {
			add(plan.PoolOf(&typed.Items[i]))
		}
	case *clusterv1.MachinePoolList:
		for i := range typed.Items {
			add(plan.PoolOf(&typed.Items[i]))
		}
	}
	return pools
}

// cluster returns a Cluster, nil if there is none.
func (w *Webhook) cluster(ctx context.Context, namespace, name string) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	exists, err := w.get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster)
	if err != nil || !exists {
		return nil, err
	}
	return cluster, nil
}

// clusterOfNow reads a Cluster of the cache again from the API server. One manifest may set the label, or remove it,
// and milliseconds later change the control plane so that its Machines are replaced, with or without the proxy. If the
// API server does not answer, the Cluster of the cache counts.
func (w *Webhook) clusterOfNow(ctx context.Context, cached *clusterv1.Cluster) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{}
	if err := w.Live.Get(ctx, client.ObjectKeyFromObject(cached), cluster); err != nil {
		ctrl.LoggerFrom(ctx).V(2).Info("Deciding by the Cluster of the cache", "reason", err.Error())
		return cached
	}
	return cluster
}

// get reads an object from the cache, or live if it is not there, and reports whether it exists. It is not changed: it
// shares memory with the cache.
func (w *Webhook) get(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	err := w.Cached.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Reading object that the cache does not have", "object", key)
		err = w.Live.Get(ctx, key, object)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", object, key, err)
	}
	return true, nil
}
