package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// Reader reads from the cache.
type Reader struct {
	Client client.Reader
}

// PatchedFor reads the KubeadmConfigTemplates that were patched for a Cluster.
func (r Reader) PatchedFor(ctx context.Context, cluster settings.Cluster) ([]bootstrapv1.KubeadmConfigTemplate, error) {
	var templates bootstrapv1.KubeadmConfigTemplateList
	if err := r.Client.List(ctx, &templates, client.InNamespace(cluster.Namespace),
		client.MatchingFields{world.IndexPatchedFor: cluster.Name}); err != nil {
		return nil, fmt.Errorf("listing KubeadmConfigTemplates: %w", err)
	}
	return templates.Items, nil
}

// Collect reads the bootstrap objects of a Cluster from the cache, the control plane first and then pools by name.
// templates are some that are read already: the objects are those, not copies. Objects that are missing or cannot be
// patched are findings.
func (r Reader) Collect(ctx context.Context, cluster settings.Cluster, templates []bootstrapv1.KubeadmConfigTemplate) (
	[]Object, Outcome, error,
) {
	pools, err := r.Pools(ctx, cluster)
	if err != nil {
		return nil, Outcome{}, err
	}
	var found Outcome
	objects := make([]Object, 0, 1+len(pools))
	switch {
	case cluster.ControlPlaneKind == plan.KindControlPlane:
		controlPlane := &controlplanev1.KubeadmControlPlane{}
		exists, err := r.Get(ctx, cluster.Namespace, cluster.ControlPlaneName, controlPlane)
		if err != nil {
			return nil, Outcome{}, err
		}
		if !exists {
			found.Add(contract.ReasonWaitingForObjects, "%s %s/%s does not exist yet", plan.KindControlPlane, cluster.Namespace,
				cluster.ControlPlaneName)
			break
		}
		created, err := r.controlPlaneMachines(ctx, cluster)
		if err != nil {
			return nil, Outcome{}, err
		}
		object := NewObject(controlPlane, plan.KindControlPlane,
			len(created) > 0 || ptr.Deref(controlPlane.Status.Replicas, 0) > 0)
		if paused := meta.FindStatusCondition(controlPlane.Status.Conditions, clusterv1.PausedCondition); paused != nil {
			object.Busy = !plan.AtRest(paused.Status) && controlPlane.DeletionTimestamp.IsZero()
		}
		object.Rollout = rolloutOf(controlPlane.Spec.Rollout.After, created)
		objects = append(objects, object)
	case cluster.ControlPlaneKind != "":
		created, err := r.controlPlaneMachines(ctx, cluster)
		if err != nil {
			return nil, Outcome{}, err
		}
		foreign := fmt.Sprintf("%s %s/%s", cluster.ControlPlaneKind, cluster.Namespace, cluster.ControlPlaneName)
		switch {
		case len(created) > 0:
			found.Add(contract.ReasonTemplateNotSupported,
				"%s is not a %s and its Machines are not patched; pools with kubeadm bootstrap objects are",
				foreign, plan.KindControlPlane)
		case len(pools) > 0: // a hosted control plane alone has no nodes yet
			found.Note("%s has no Machines and is not patched", foreign)
		}
	}

	for _, p := range pools {
		switch {
		case p.Bootstrap.Name == "":
			found.Note("%s has its own bootstrap data and is not patched", p)
			continue
		case p.Bootstrap.Kind != p.BootstrapKind() && p.Override == contract.SecretNone:
			continue
		case p.Bootstrap.Kind != p.BootstrapKind():
			found.Add(contract.ReasonTemplateNotSupported,
				"%s uses %s %s, which cannot be patched, as it is not kubeadm's; see docs/scope.md, and set annotation %s: %s "+
					"on the pool to leave it out",
				p, p.Bootstrap.Kind, p.Bootstrap.Name, contract.AnnotationSecret, contract.SecretNone)
			continue
		}
		if known := slices.IndexFunc(objects, func(o Object) bool {
			return o.Kind == p.Bootstrap.Kind && o.GetName() == p.Bootstrap.Name
		}); known >= 0 {
			objects[known].Pools = append(objects[known].Pools, p)
			continue
		}
		object, err := r.bootstrapOf(ctx, cluster.Namespace, p, templates)
		if err != nil {
			return nil, Outcome{}, err
		}
		if object == nil {
			found.Add(contract.ReasonWaitingForObjects, "%s %s/%s does not exist yet", p.Bootstrap.Kind, cluster.Namespace,
				p.Bootstrap.Name)
			continue
		}
		object.Pools = []plan.Pool{p}
		objects = append(objects, *object)
	}
	return objects, found, nil
}

// bootstrapOf reads the bootstrap object of a pool. It returns nil if there is none.
func (r Reader) bootstrapOf(ctx context.Context, namespace string, p plan.Pool,
	templates []bootstrapv1.KubeadmConfigTemplate,
) (*Object, error) {
	if p.Bootstrap.Kind == plan.KindTemplate {
		var template *bootstrapv1.KubeadmConfigTemplate
		for i := range templates {
			if templates[i].Name == p.Bootstrap.Name {
				template = &templates[i]
			}
		}
		if template == nil {
			template = &bootstrapv1.KubeadmConfigTemplate{}
			exists, err := r.Get(ctx, namespace, p.Bootstrap.Name, template)
			if err != nil || !exists {
				return nil, err
			}
		}
		object := NewObject(template, plan.KindTemplate, false)
		return &object, nil
	}
	config := &bootstrapv1.KubeadmConfig{}
	exists, err := r.Get(ctx, namespace, p.Bootstrap.Name, config)
	if err != nil || !exists {
		return nil, err
	}
	object := NewObject(config, plan.KindConfig, config.Status.DataSecretName != "")
	return &object, nil
}

// ForeignUser returns a pool of another Cluster that uses the template too, or nil.
func (r Reader) ForeignUser(ctx context.Context, cluster settings.Cluster, o Object) (*plan.Pool, error) {
	if o.Kind != plan.KindTemplate {
		return nil, nil //nolint:nilnil // "no other user" is an answer, not an error
	}
	pools, err := world.Clusters{Client: r.Client}.Pools(ctx, o.Kind, cluster.Namespace, o.GetName())
	if i := slices.IndexFunc(pools, func(p plan.Pool) bool { return p.Cluster != cluster.Name }); i >= 0 {
		return &pools[i], nil
	}
	return nil, err
}

// Get reads an object from the cache and reports whether it exists.
func (r Reader) Get(ctx context.Context, namespace, name string, object client.Object) (bool, error) {
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s/%s: %w", namespace, name, err)
	}
	return true, nil
}

// Pools returns the MachineDeployments, then the MachinePools of a Cluster, each by name.
func (r Reader) Pools(ctx context.Context, cluster settings.Cluster) ([]plan.Pool, error) {
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
func (r Reader) controlPlaneMachines(ctx context.Context, cluster settings.Cluster) ([]time.Time, error) {
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

// Configs are the KubeadmConfigs of a Cluster in one pass.
type Configs struct {
	reader  Reader
	cluster settings.Cluster
	list    *bootstrapv1.KubeadmConfigList // nil until the first use
}

// Configs returns the KubeadmConfigs of a Cluster.
func (r Reader) Configs(cluster settings.Cluster) *Configs {
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
