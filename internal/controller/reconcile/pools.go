package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
)

// Pools returns the MachineDeployments, then the MachinePools of a Cluster, each by name.
func (r Reader) Pools(ctx context.Context, cluster intent.Cluster) ([]plan.Pool, error) {
	in := []client.ListOption{
		client.InNamespace(cluster.Namespace),
		client.MatchingFields{world.IndexCluster: cluster.Name},
		client.UnsafeDisableDeepCopy,
	}
	var (
		deployments  clusterv1.MachineDeploymentList
		machinePools clusterv1.MachinePoolList
	)
	if err := r.Client.List(ctx, &deployments, in...); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	if err := r.Client.List(ctx, &machinePools, in...); err != nil {
		return nil, fmt.Errorf("listing MachinePools: %w", err)
	}
	pools := make([]plan.Pool, 0, len(deployments.Items)+len(machinePools.Items))
	for i := range deployments.Items {
		pools = append(pools, plan.PoolOf(&deployments.Items[i]))
	}
	for i := range machinePools.Items {
		pools = append(pools, plan.PoolOf(&machinePools.Items[i]))
	}
	slices.SortStableFunc(pools, func(a, b plan.Pool) int {
		if a.Kind != b.Kind {
			return cmp.Compare(a.Kind, b.Kind)
		}
		return cmp.Compare(a.Object, b.Object)
	})
	return pools, nil
}

// controlPlaneMachines returns when the Machines of the control plane were created.
func (r Reader) controlPlaneMachines(ctx context.Context, cluster intent.Cluster) ([]time.Time, error) {
	ofControlPlane, err := world.OfControlPlane()
	if err != nil {
		return nil, err
	}
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	err = r.Client.List(ctx, machines, client.InNamespace(cluster.Namespace),
		client.MatchingFields{world.IndexLabel: cluster.Name}, client.MatchingLabelsSelector{Selector: ofControlPlane},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing control-plane Machines: %w", err)
	}
	var created []time.Time
	for i := range machines.Items {
		created = append(created, machines.Items[i].CreationTimestamp.Time)
	}
	return created, nil
}

// rolloutOf returns the time at which spec.rollout.after replaces all Machines of a control plane, or the zero time if
// it is not set or some of them are already replaced for it.
func rolloutOf(after metav1.Time, created []time.Time) time.Time {
	if slices.ContainsFunc(created, func(t time.Time) bool { return !t.Before(after.Time) }) {
		return time.Time{}
	}
	return after.Time
}
