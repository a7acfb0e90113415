package preview

import (
	"context"
	"fmt"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// InPlace are nodes of a control plane or pool that are changed in place.
type InPlace struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Machines and Nodes are their names, in the same order. For a MachinePool there are no Machines.
	Machines []string `json:"machines"`
	Nodes    []string `json:"nodes"`
}

// inPlace returns the nodes that are changed in place, of a Cluster that asks for it. begins reports that the Cluster
// has not asked for these targets before.
func inPlace(ctx context.Context, api client.Reader, cluster *clusterv1.Cluster, result Result, begins bool) (
	all []InPlace, err error,
) {
	var machines clusterv1.MachineList
	if err := api.List(ctx, &machines, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	nodes := make(map[string]string, len(machines.Items))
	for i := range machines.Items {
		nodes[machines.Items[i].Name] = machines.Items[i].Status.NodeRef.Name
	}
	for _, group := range result.behind() {
		from := result.objectOf(group.Kind, group.Name)
		if from == nil {
			continue
		}
		one := InPlace{Kind: group.Kind, Name: group.Name, Machines: []string{}}
		for _, machine := range group.Machines {
			// A Machine whose static Pods lack the variables stays behind when its node has the files.
			has := machine.Updated && machine.Lag == outdated.OldEntries && patch.FilesDigest(*from.Recipe) == ""
			if node := nodes[machine.Name]; node != "" && (begins || !has) {
				one.Machines, one.Nodes = append(one.Machines, machine.Name), append(one.Nodes, node)
			}
		}
		all = append(all, one)
	}
	// Which nodes of a MachinePool have the files already is known in the workload cluster alone.
	for _, o := range result.Reconciled {
		if o.Kind != plan.KindConfig || o.Recipe == nil || len(o.Recipe.Files) == 0 ||
			!begins && !result.writesSecret(o.Secret) && len(o.Decision.Edits) == 0 {
			continue
		}
		for _, p := range o.Pools {
			var pool clusterv1.MachinePool
			key := client.ObjectKey{Namespace: cluster.Namespace, Name: p.Object}
			if err := api.Get(ctx, key, &pool); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading MachinePool %s: %w", key, err)
			}
			one := InPlace{Kind: settings.KindMachinePool, Name: p.Object, Machines: []string{}}
			for _, node := range pool.Status.NodeRefs {
				one.Nodes = append(one.Nodes, node.Name)
			}
			all = append(all, one)
		}
	}
	return slices.DeleteFunc(all, func(i InPlace) bool { return len(i.Nodes) == 0 }), nil
}

// behind are the Machines that are behind, none if that is not known.
func (r Result) behind() []outdated.Group {
	if r.Behind == nil {
		return nil
	}
	return *r.Behind
}

// writesSecret reports whether the pass writes a generated Secret.
func (r Result) writesSecret(name string) bool {
	return slices.ContainsFunc(r.Writes, func(w Write) bool { return w.Kind == "Secret" && w.Name == name })
}

// objectOf is the object with the recipe for nodes of a control plane or pool, nil if there is none that is known.
func (r Result) objectOf(kind, name string) *controller.Reconciled {
	for i := range r.Reconciled {
		o := &r.Reconciled[i]
		known := o.Recipe != nil && len(o.Recipe.Files) > 0
		has := func(p plan.Pool) bool { return p.Kind == kind && p.Object == name }
		if known && (o.Kind == kind && o.GetName() == name || slices.ContainsFunc(o.Pools, has)) {
			return o
		}
	}
	return nil
}
