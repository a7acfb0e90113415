package reconcile

import (
	"context"
	"fmt"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
)

// Configs are the KubeadmConfigs of a Cluster in one pass.
type Configs struct {
	reader  Reader
	cluster intent.Cluster
	list    *bootstrapv1.KubeadmConfigList // nil until the first use
}

// Configs returns the KubeadmConfigs of a Cluster.
func (r Reader) Configs(cluster intent.Cluster) *Configs {
	return &Configs{reader: r, cluster: cluster}
}

// List returns the KubeadmConfigs as they were at the first call of the pass. They are the objects of the cache: copy
// one before you change it.
func (c *Configs) List(ctx context.Context) ([]bootstrapv1.KubeadmConfig, error) {
	if c.list == nil {
		list := &bootstrapv1.KubeadmConfigList{}
		if err := c.reader.Client.List(ctx, list, client.InNamespace(c.cluster.Namespace),
			client.MatchingFields{world.IndexLabel: c.cluster.Name},
			client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing KubeadmConfigs: %w", err)
		}
		c.list = list
	}
	return c.list.Items, nil
}

// Late returns the KubeadmConfigs of worker Machines without bootstrap data. Almost all of them were cloned from a
// patched template, or were patched at admission; the others are patched while there is time. Those of control-plane
// Machines are never changed: KubeadmControlPlane compares them with its own configuration.
func (c *Configs) Late(ctx context.Context) ([]Object, error) {
	configs, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	var objects []Object
	for i := range configs {
		config := &configs[i]
		_, controlPlane := config.Labels[clusterv1.MachineControlPlaneLabel]
		if controlPlane || !isOfMachine(config) || config.Status.DataSecretName != "" {
			continue
		}
		config = config.DeepCopy()
		object := NewObject(config, plan.KindConfig, false)
		if name := config.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
			deployment := &clusterv1.MachineDeployment{}
			exists, err := c.reader.Get(ctx, c.cluster.Namespace, name, deployment)
			if err != nil {
				return nil, err
			}
			if !exists {
				continue // its pool is being removed, and its proxy Secret is not known
			}
			object.Pools = []plan.Pool{plan.PoolOf(deployment)}
		}
		objects = append(objects, object)
	}
	return objects, nil
}
