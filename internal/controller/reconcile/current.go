package reconcile

import (
	"context"
	"fmt"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// CheckCurrent returns a conflict unless a cached Cluster asks for the same as that of the API server. With a cache
// from before a label or an annotation was set or removed, a pass would undo the work of an earlier one, and the next
// pass would do it again, if it can.
func CheckCurrent(ctx context.Context, api client.Reader, cached *clusterv1.Cluster) error {
	live := &clusterv1.Cluster{}
	err := api.Get(ctx, client.ObjectKeyFromObject(cached), live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Cluster %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	if err != nil || !asksTheSame(live, cached) {
		return CacheBehind("Cluster", cached)
	}
	return nil
}

// asksTheSame reports whether users ask for the same in two versions of a Cluster.
func asksTheSame(a, b *clusterv1.Cluster) bool {
	differs := func(of func(*clusterv1.Cluster) map[string]string, names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return of(a)[name] != of(b)[name] })
	}
	annotations := append(contract.UserAnnotations(), contract.AnnotationTopologyHold, clusterv1.PausedAnnotation)
	return a.UID == b.UID && a.Generation == b.Generation &&
		a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero() &&
		!differs(func(c *clusterv1.Cluster) map[string]string { return c.Labels }, contract.UserLabels()) &&
		!differs(func(c *clusterv1.Cluster) map[string]string { return c.Annotations }, annotations)
}
