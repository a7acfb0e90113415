package explain

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

const (
	// maxHosts bounds how many hosts are destinations, and maxPools how many pools of a Cluster are read for them.
	maxHosts = 100
	maxPools = 100
	// maxName is the length of the longest name of an object or a host.
	maxName = 253
)

// addHosts adds the hosts that bootstrap specs name and a client with the proxy asks, each once with the first object
// that names it.
func (t target) addHosts(network *Cluster) {
	known := map[string]bool{}
	for _, o := range t.bootstrap {
		for _, h := range kinds.Hosts(kinds.SpecOf(o)) {
			if known[h.URL] || len(known) == maxHosts || h.Outside || !slices.Contains(t.settings.Options.Targets, h.Target) {
				continue
			}
			known[h.URL] = true
			network.Add(h.URL, fmt.Sprintf("%s in %s %s", finding.Line(h.What, maxName),
				o.GetObjectKind().GroupVersionKind().Kind, finding.Line(o.GetName(), maxName)))
		}
	}
}

// bootstrapOf returns the bootstrap objects of a Cluster that use a proxy Secret by the name in their pool, "" for that
// of the Cluster.
func bootstrapOf(ctx context.Context, api client.Reader, cluster *clusterv1.Cluster, override string) (
	found []kinds.BootstrapObject, err error,
) {
	var references []clusterv1.ContractVersionedObjectReference
	if override == "" {
		references = append(references, cluster.Spec.ControlPlaneRef)
	}
	var (
		deployments clusterv1.MachineDeploymentList
		pools       clusterv1.MachinePoolList
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
