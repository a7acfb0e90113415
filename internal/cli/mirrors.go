package cli

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/explain"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

const (
	// maxMirrors bounds how many mirrors are destinations, and maxPools how many pools of a Cluster are read for them.
	maxMirrors = 100
	maxPools   = 100
	// maxName is the length of the longest name of an object or a host.
	maxName = 253
)

// addMirrors adds the registry mirrors in the user's own files, each once with the first object that names it.
func (t target) addMirrors(network *explain.Cluster) {
	if !slices.Contains(t.settings.Options.Targets, contract.TargetContainerd) {
		return
	}
	known := map[clusters.Mirror]bool{}
	for _, o := range t.bootstrap {
		for _, mirror := range clusters.Mirrors(o.Bootstrap().View().Files) {
			if mirror.File = 0; known[mirror] || len(known) == maxMirrors {
				continue
			}
			known[mirror] = true
			network.Add(mirror.URL, fmt.Sprintf("mirror of %s in %s %s", finding.Line(mirror.Registry, maxName),
				o.GetObjectKind().GroupVersionKind().Kind, finding.Line(o.GetName(), maxName)))
		}
	}
}

// bootstrapOf returns the bootstrap objects of a Cluster that use a proxy Secret by the name in their pool, "" for that
// of the Cluster.
func bootstrapOf(ctx context.Context, api client.Reader, cluster *kinds.Cluster, override string) (
	found []kinds.BootstrapObject, err error,
) {
	var references []kinds.Reference
	if override == "" {
		references = append(references, cluster.Spec.ControlPlaneRef)
	}
	var (
		deployments kinds.MachineDeploymentList
		pools       kinds.MachinePoolList
	)
	of := []client.ListOption{
		client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.Limit(maxPools),
	}
	if err := api.List(ctx, &deployments, of...); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	if err := api.List(ctx, &pools, of...); err != nil {
		return nil, fmt.Errorf("listing MachinePools: %w", err)
	}
	for _, d := range deployments.Items {
		if d.Annotations[contract.AnnotationSecret] == override {
			references = append(references, d.Spec.Template.Spec.Bootstrap.ConfigRef)
		}
	}
	for _, p := range pools.Items {
		if p.Annotations[contract.AnnotationSecret] == override {
			references = append(references, p.Spec.Template.Spec.Bootstrap.ConfigRef)
		}
	}
	for i, ref := range references {
		if slices.Contains(references[:i], ref) ||
			!slices.Contains([]string{plan.KindControlPlane, plan.KindTemplate, plan.KindConfig}, ref.Kind) {
			continue
		}
		object := kinds.NewBootstrapObject(ref.Kind)
		err := api.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, object)
		if client.IgnoreNotFound(err) != nil {
			return nil, reading(err, ref.Kind, cluster.Namespace, ref.Name)
		}
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: ref.APIGroup, Kind: ref.Kind})
		if err == nil {
			found = append(found, object)
		}
	}
	return found, nil
}
