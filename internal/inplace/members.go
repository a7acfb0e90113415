package inplace

import (
	"context"
	"fmt"
	"path"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// members returns the nodes of generated Secrets.
func (s *Step) members(ctx context.Context, p *controller.Pass) (members []Member, err error) {
	configs, err := p.Configs.List(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what failed
	}
	targets := targetsOf(p.Reconciled)
	machines := map[types.UID]int{} // the positions of those whose node is not known
	for i := range configs {
		config := &configs[i]
		owner, group := metav1.GetControllerOf(config), groupOf(config)
		secret, known := targets[group]
		switch {
		case !p.View.Enabled:
			secret = settings.GeneratedSecretName(p.Cluster.Name)
		case !known:
			secret = SecretOf(kinds.View(config))
		}
		if owner == nil || owner.Kind != "Machine" || secret == "" {
			continue
		}
		stored, known := s.nodes.Get(owner.UID)
		node, _ := stored.(string)
		if !known && config.Status.DataSecretName != "" {
			machines[owner.UID] = len(members)
		}
		members = append(members, Member{
			Node: node, Secret: secret, Config: config.Name, Machine: owner.Name,
			Leaving: !config.DeletionTimestamp.IsZero(), Plain: !p.View.Enabled && !hasFiles(config),
		})
	}
	if len(machines) > 0 {
		if err := s.find(ctx, p.Cluster, machines, members); err != nil {
			return nil, err
		}
	}
	pools, err := s.pools(ctx, p)
	return append(members, pools...), err
}

// hasFiles reports whether the node of a Machine has files of the product, as far as its KubeadmConfig shows that.
func hasFiles(config *bootstrapv1.KubeadmConfig) bool {
	switch config.Annotations[contract.AnnotationUpdatedFiles] {
	case contract.FilesRemovedValue:
		return false
	case "":
		return patch.IsPatched(kinds.View(config))
	}
	return true
}

// targetsOf returns the generated Secret of each group, "" for one that asks for no proxy, as far as that is known.
func targetsOf(objects []controller.Reconciled) map[string]string {
	targets := map[string]string{}
	for _, o := range objects {
		if o.Recipe == nil {
			continue
		}
		if o.Kind == plan.KindControlPlane {
			targets[""] = o.Secret
		}
		for _, pool := range o.Pools {
			targets[pool.String()] = o.Secret
		}
	}
	return targets
}

// groupOf names the pool of the Machine of a KubeadmConfig, or returns "" for the control plane.
func groupOf(config *bootstrapv1.KubeadmConfig) string {
	if _, controlPlane := config.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
		return ""
	}
	if name := config.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		return settings.KindMachineDeployment + " " + name
	}
	return "Machine"
}

// SecretOf returns the generated Secret from which a node with a spec has its variables, or "".
func SecretOf(spec patch.Spec) string {
	for _, file := range spec.Files {
		if path.Clean(file.Path) == contract.PathProxyEnv && patch.IsManagedFile(file) {
			return file.ContentFrom.Name
		}
	}
	return ""
}

// find finds the Nodes of Machines. A Machine that has none yet changes when it gets one.
func (s *Step) find(ctx context.Context, cluster *clusterv1.Cluster, positions map[types.UID]int,
	members []Member,
) error {
	var machines clusterv1.MachineList
	if err := s.live.List(ctx, &machines, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return fmt.Errorf("listing Machines: %w", err)
	}
	for i := range machines.Items {
		machine := &machines.Items[i]
		position, asked := positions[machine.UID]
		if node := machine.Status.NodeRef.Name; asked && node != "" {
			members[position].Node = node
			s.nodes.Set(machine.UID, node, nodeMemory)
		}
	}
	return nil
}

// pools returns the nodes of MachinePools.
func (s *Step) pools(ctx context.Context, p *controller.Pass) (members []Member, err error) {
	secrets := targetsOf(p.Reconciled)
	for _, o := range p.Reconciled {
		for _, pool := range o.Pools {
			switch {
			case !p.View.Enabled && pool.UsesProxy():
				secrets[pool.String()] = settings.GeneratedSecretName(p.Cluster.Name)
			case !p.View.Enabled:
				delete(secrets, pool.String())
			case o.Recipe == nil:
				secrets[pool.String()] = SecretOf(o.Spec)
			}
		}
	}
	if !slices.ContainsFunc(p.Reconciled, func(o controller.Reconciled) bool { return o.Kind == plan.KindConfig }) {
		return nil, nil
	}
	var pools clusterv1.MachinePoolList
	if err := s.live.List(ctx, &pools, client.InNamespace(p.Cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing MachinePools: %w", err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		group := settings.KindMachinePool + " " + pool.Name
		secret := secrets[group]
		if secret == "" || pool.Spec.ClusterName != p.Cluster.Name {
			continue
		}
		if len(pool.Status.NodeRefs) == 0 && p.View.Enabled { // it may be empty
			members = append(members, Member{Secret: secret})
		}
		for _, node := range pool.Status.NodeRefs {
			members = append(members, Member{
				Node: node.Name, Secret: secret, Leaving: !pool.DeletionTimestamp.IsZero(),
			})
		}
	}
	return members, nil
}
