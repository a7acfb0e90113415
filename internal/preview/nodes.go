package preview

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
)

// Restart are nodes of a control plane or pool that an update in place changes alike.
type Restart struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Machines and Nodes are their names, in the same order. For a MachinePool there are no Machines.
	Machines []string `json:"machines"`
	Nodes    []string `json:"nodes"`
	patch.NodeChange
}

// restarts returns the changes of updates in place on the nodes of a Cluster that asks for them. The management cluster
// knows what a Machine was made with and, by annotations of its KubeadmConfig, what its node got in place since. begins
// reports that the Cluster has not asked for updates in place of these targets before.
func restarts(ctx context.Context, w *world.Reader, api client.Reader, cluster *kinds.Cluster, result Result,
	begins bool,
) ([]Restart, error) {
	all, err := ofMachines(ctx, w, api, cluster, result, begins)
	if err != nil {
		return nil, err
	}
	return ofMachinePools(ctx, w, api, cluster, result, all, begins)
}

// ofMachines adds the nodes of Machines that are behind.
func ofMachines(ctx context.Context, w *world.Reader, api client.Reader, cluster *kinds.Cluster, result Result,
	begins bool,
) (all []Restart, err error) {
	if result.Behind == nil {
		return nil, nil
	}
	var list kinds.MachineList
	if err := api.List(ctx, &list, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	for _, group := range *result.Behind {
		from := result.objectOf(group.Kind, group.Name)
		if from == nil {
			continue
		}
		for _, machine := range group.Machines {
			i := slices.IndexFunc(list.Items, func(m kinds.Machine) bool { return m.Name == machine.Name })
			if i < 0 || list.Items[i].Status.NodeRef.Name == "" {
				continue
			}
			config := &kinds.KubeadmConfig{}
			key := client.ObjectKey{Namespace: cluster.Namespace, Name: list.Items[i].Spec.Bootstrap.ConfigRef.Name}
			if err := w.Get(ctx, key, config); client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			update, spec := plan.UpdateOf(config.Annotations), config.Bootstrap().View()
			// A Machine whose static Pods lack the variables stays behind when its node has the files.
			stays := machine.Lag == status.OldEntries && patch.FilesDigest(*from.Recipe) == ""
			if stays && !update.At.IsZero() && !begins {
				if machine.Updated {
					continue
				}
				spec.Files = from.Recipe.Files
			}
			change := patch.ChangeOf(spec, *from.Recipe, update.Files)
			all = add(all, group.Kind, group.Name, machine.Name, list.Items[i].Status.NodeRef.Name, change)
		}
	}
	return all, nil
}

// ofMachinePools adds the nodes of MachinePools whose files change with this pass. Which of them have had the files
// before is known in the workload cluster alone.
func ofMachinePools(ctx context.Context, w *world.Reader, api client.Reader, cluster *kinds.Cluster, result Result,
	all []Restart, begins bool,
) ([]Restart, error) {
	for _, o := range result.Reconciled {
		if o.Kind != plan.KindConfig || o.Recipe == nil || len(o.Recipe.Files) == 0 {
			continue
		}
		config := &kinds.KubeadmConfig{}
		if err := w.Get(ctx, client.ObjectKeyFromObject(o), config); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		change := patch.ChangeOf(config.Bootstrap().View(), *o.Recipe, "")
		others := len(change.Adds) + len(change.Removes) + len(change.Conflicts)
		if !begins && !result.writesSecret(o.Secret) && others == 0 {
			continue
		}
		for _, p := range o.Pools {
			var pool kinds.MachinePool
			key := client.ObjectKey{Namespace: cluster.Namespace, Name: p.Object}
			if err := api.Get(ctx, key, &pool); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading MachinePool %s: %w", key, err)
			}
			for _, node := range pool.Status.NodeRefs {
				all = add(all, intent.KindMachinePool, p.Object, "", node.Name, change)
			}
		}
	}
	return all, nil
}

// writesSecret reports whether the pass writes a generated Secret.
func (r Result) writesSecret(name string) bool {
	return slices.ContainsFunc(r.Writes, func(w Write) bool { return w.Kind == "Secret" && w.Name == name })
}

// objectOf is the object with the recipe for nodes of a control plane or pool, nil if there is none that is known.
func (r Result) objectOf(kind, name string) *reconcile.Reconciled {
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

// add adds a node to those of its group that change alike.
func add(all []Restart, kind, name, machine, node string, change patch.NodeChange) []Restart {
	i := slices.IndexFunc(all, func(r Restart) bool {
		return r.Kind == kind && r.Name == name && reflect.DeepEqual(r.NodeChange, change)
	})
	if i < 0 {
		i, all = len(all), append(all, Restart{Kind: kind, Name: name, Machines: []string{}, NodeChange: change})
	}
	if machine != "" {
		all[i].Machines = append(all[i].Machines, machine)
	}
	all[i].Nodes = append(all[i].Nodes, node)
	return all
}
