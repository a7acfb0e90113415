package webhook

import (
	"context"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
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
		return w.ownerByPools(ctx, object, object.clusterName())
	default:
		return w.ownerOfConfig(ctx, object)
	}
}

// clusters finds who refers to an object, in the cache or live. The controller patches what is left out.
func (w *Webhook) clusters() world.Clusters {
	return world.Clusters{Client: fresh{w.Cached, w.Live}}
}

// clusterOfControlPlane finds the Cluster that refers to a KubeadmControlPlane. The one that its own label or owner
// reference names does not count if it refers to another one.
func (w *Webhook) clusterOfControlPlane(ctx context.Context, object write) (*clusterv1.Cluster, error) {
	if object.name == "" {
		return nil, nil //nolint:nilnil // nothing refers to an object without a name
	}
	if name := object.clusterName(); name != "" {
		cluster, err := w.cluster(ctx, object.namespace, name)
		if err != nil || cluster == nil || world.RefersTo(cluster, object.name) {
			return cluster, err
		}
	}
	clusters, err := w.clusters().ByControlPlane(ctx, object.namespace, object.name)
	if err != nil || len(clusters) == 0 {
		return nil, err
	}
	return &clusters[0], nil
}

// ownerOfConfig finds the pool and the Cluster of a KubeadmConfig: by the MachinePool that refers to it, or by the
// labels and owners that Cluster API has written on the KubeadmConfig of a Machine.
func (w *Webhook) ownerOfConfig(ctx context.Context, object write) (owner, error) {
	labels := object.requested.GetLabels()
	deployment, name := labels[clusterv1.MachineDeploymentNameLabel], labels[clusterv1.ClusterNameLabel]
	if deployment == "" && !object.hasOwner("Machine") && !object.hasOwner("MachineSet") {
		return w.ownerByPools(ctx, object, name)
	}
	if name == "" {
		return owner{}, nil
	}
	cluster, err := w.cluster(ctx, object.namespace, name)
	if err != nil || deployment == "" {
		return owner{cluster: cluster}, err
	}
	md, found := &clusterv1.MachineDeployment{}, owner{cluster: cluster}
	key := client.ObjectKey{Namespace: object.namespace, Name: deployment}
	if err = w.clusters().Client.Get(ctx, key, md); err == nil {
		found.pools = []plan.Pool{plan.PoolOf(md)}
	}
	return found, client.IgnoreNotFound(err)
}

// ownerByPools finds the pools that refer to an object, and their Cluster, or without pools the one of a name. Pools of
// a second Cluster are foreign to the first labelled one by name.
func (w *Webhook) ownerByPools(ctx context.Context, object write, cluster string) (found owner, err error) {
	pools, err := w.clusters().Pools(ctx, object.kind, object.namespace, object.name)
	if err != nil {
		return owner{}, err
	}
	for _, name := range clusterNames(pools, cluster) {
		cluster, err := w.cluster(ctx, object.namespace, name)
		if err != nil {
			return owner{}, err
		}
		if cluster != nil &&
			(found.cluster == nil || settings.StateOf(cluster.Labels) > settings.StateOf(found.cluster.Labels)) {
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

// cluster returns a Cluster, nil if there is none.
func (w *Webhook) cluster(ctx context.Context, namespace, name string) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	err := w.clusters().Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
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
