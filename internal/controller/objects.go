package controller

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// bootstrapObject is an object with a bootstrap spec that belongs to a Cluster.
type bootstrapObject struct {
	object   client.Object
	kind     string
	spec     patch.Spec
	location patch.Location
	// pools that use the object; none for a control plane.
	pools []plan.Pool
	// running reports that a change of the object replaces Machines of a control plane, or comes too late for
	// the bootstrap data of a MachinePool.
	running bool
	// busy reports that Cluster API works on a control plane, and may be creating its first Machine from an earlier version.
	busy bool
	// rollout is when the user has all Machines of a control plane replaced, or the zero time.
	rollout time.Time
	// recipe is what the object is to have, nil if that is not known. generated is the Secret that it refers to.
	recipe    *patch.Recipe
	generated string
	// proxy is the proxy Secret that the object is to have the proxy of, or "" if it is to have none or that is not known.
	proxy string
}

func (o bootstrapObject) String() string { return o.kind + " " + klog.KObj(o.object).String() }

// key names the object among those of its Cluster.
func (o bootstrapObject) key() string { return plan.OriginalsKey(o.kind, o.object.GetName()) }

// collect reads the bootstrap objects of a Cluster from the cache, the control plane first and then pools by name.
// What is missing or cannot be patched is a finding.
func (c *Controller) collect(ctx context.Context, cluster intent.Cluster) ([]bootstrapObject, findings, error) {
	var (
		objects []bootstrapObject
		found   findings
	)
	switch {
	case cluster.ControlPlaneKind == plan.KindControlPlane:
		controlPlane := &controlplanev1.KubeadmControlPlane{}
		exists, err := c.get(ctx, cluster.Namespace, cluster.ControlPlaneName, controlPlane)
		if err != nil {
			return nil, nil, err
		}
		if !exists {
			found.add(contract.ReasonWaitingForObjects, "%s %s/%s does not exist yet", plan.KindControlPlane, cluster.Namespace, cluster.ControlPlaneName)
			break
		}
		created, err := c.controlPlaneMachines(ctx, cluster)
		if err != nil {
			return nil, nil, err
		}
		object := newObject(controlPlane, plan.KindControlPlane, &controlPlane.Spec.KubeadmConfigSpec,
			len(created) > 0 || controlPlane.Status.Replicas != nil && *controlPlane.Status.Replicas > 0)
		if paused := meta.FindStatusCondition(controlPlane.Status.Conditions, clusterv1.PausedCondition); paused != nil {
			object.busy = !plan.AtRest(paused.Status) && controlPlane.DeletionTimestamp.IsZero()
		}
		object.rollout = rolloutOf(controlPlane.Spec.Rollout.After, created)
		objects = append(objects, object)
	case cluster.ControlPlaneKind != "":
		found.add(contract.ReasonTemplateNotSupported, "%s %s/%s is not a %s and is not patched; pools with kubeadm bootstrap objects are",
			cluster.ControlPlaneKind, cluster.Namespace, cluster.ControlPlaneName, plan.KindControlPlane)
	}

	pools, err := c.pools(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range pools {
		switch {
		case p.Bootstrap.Name == "":
			found.note("%s brings its own bootstrap data and is not patched", p)
			continue
		case p.Kind == intent.KindMachineDeployment && p.Bootstrap.Kind != plan.KindTemplate, p.Kind == intent.KindMachinePool && p.Bootstrap.Kind != plan.KindConfig:
			found.add(contract.ReasonTemplateNotSupported, "%s uses %s %s, which cannot be patched; only kubeadm bootstrap objects can",
				p, p.Bootstrap.Kind, p.Bootstrap.Name)
			continue
		}
		if known := slices.IndexFunc(objects, func(o bootstrapObject) bool {
			return o.kind == p.Bootstrap.Kind && o.object.GetName() == p.Bootstrap.Name
		}); known >= 0 {
			objects[known].pools = append(objects[known].pools, p)
			continue
		}
		object, err := c.bootstrapOf(ctx, cluster.Namespace, p)
		if err != nil {
			return nil, nil, err
		}
		if object == nil {
			found.add(contract.ReasonWaitingForObjects, "%s %s/%s does not exist yet", p.Bootstrap.Kind, cluster.Namespace, p.Bootstrap.Name)
			continue
		}
		object.pools = []plan.Pool{p}
		objects = append(objects, *object)
	}
	return objects, found, nil
}

// late returns the KubeadmConfigs of worker Machines whose bootstrap data is still to be made. Almost all of them were
// cloned from a patched template, or were patched at admission; those that were not are patched while it is time.
// Those of control-plane Machines are never touched: KubeadmControlPlane compares them with its own configuration.
func (r *reconciliation) late(ctx context.Context) ([]bootstrapObject, error) {
	configs, err := r.configs(ctx)
	if err != nil {
		return nil, err
	}
	var objects []bootstrapObject
	for i := range configs {
		config := &configs[i]
		_, controlPlane := config.Labels[clusterv1.MachineControlPlaneLabel]
		if controlPlane || !isOfMachine(config) || config.Status.DataSecretName != "" {
			continue
		}
		config = config.DeepCopy()
		object := newObject(config, plan.KindConfig, &config.Spec, false)
		if name := config.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
			deployment := &clusterv1.MachineDeployment{}
			exists, err := r.get(ctx, r.view.Namespace, name, deployment)
			if err != nil {
				return nil, err
			}
			if !exists {
				continue // its pool is going, and its proxy Secret is not known
			}
			object.pools = []plan.Pool{plan.PoolOf(deployment)}
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// isOfMachine reports whether a KubeadmConfig is that of a Machine, which Cluster API has made and deletes with it.
func isOfMachine(object client.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && (owner.Kind == "Machine" || owner.Kind == "MachineSet")
}

// configs returns the KubeadmConfigs of the Cluster as they were when the pass first asked. They are those of the cache
// itself: whoever changes one copies it first.
func (r *reconciliation) configs(ctx context.Context) ([]bootstrapv1.KubeadmConfig, error) {
	if r.listed == nil {
		list, err := r.configsOf(ctx, r.view)
		if err != nil {
			return nil, err
		}
		r.listed = list
	}
	return r.listed.Items, nil
}

// configsOf lists the KubeadmConfigs of a Cluster in the cache.
func (c *Controller) configsOf(ctx context.Context, cluster intent.Cluster) (*bootstrapv1.KubeadmConfigList, error) {
	list := &bootstrapv1.KubeadmConfigList{}
	if err := c.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingFields{lookup.IndexLabel: cluster.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing KubeadmConfigs: %w", err)
	}
	return list, nil
}

// bootstrapOf reads the bootstrap object of a pool. It returns nil if there is none.
func (c *Controller) bootstrapOf(ctx context.Context, namespace string, p plan.Pool) (*bootstrapObject, error) {
	if p.Bootstrap.Kind == plan.KindTemplate {
		template := &bootstrapv1.KubeadmConfigTemplate{}
		exists, err := c.get(ctx, namespace, p.Bootstrap.Name, template)
		if err != nil || !exists {
			return nil, err
		}
		object := newObject(template, plan.KindTemplate, &template.Spec.Template.Spec, false)
		return &object, nil
	}
	config := &bootstrapv1.KubeadmConfig{}
	exists, err := c.get(ctx, namespace, p.Bootstrap.Name, config)
	if err != nil || !exists {
		return nil, err
	}
	object := newObject(config, plan.KindConfig, &config.Spec, config.Status.DataSecretName != "")
	return &object, nil
}

func newObject(object client.Object, kind string, spec *bootstrapv1.KubeadmConfigSpec, running bool) bootstrapObject {
	return bootstrapObject{object: object, kind: kind, spec: patch.SpecOf(spec), location: locate(object, kind, spec), running: running}
}

// locate returns where spec is in object. It sees the fields that the program's types have.
func locate(object client.Object, kind string, spec *bootstrapv1.KubeadmConfigSpec) patch.Location {
	at := patch.Location{Parents: plan.Parents(kind)}
	parents := 1 // that hold nothing but the spec: the API accepts none of them empty
	if template, ok := object.(*bootstrapv1.KubeadmConfigTemplate); ok && reflect.DeepEqual(template.Spec.Template.ObjectMeta, clusterv1.ObjectMeta{}) {
		parents = len(at.Parents)
	}
	others := *spec
	others.Files, others.PreKubeadmCommands, others.PostKubeadmCommands = nil, nil, nil
	switch {
	case reflect.DeepEqual(*spec, bootstrapv1.KubeadmConfigSpec{}):
		at.Missing = parents
	case reflect.DeepEqual(others, bootstrapv1.KubeadmConfigSpec{}):
		at.Alone = parents
	}
	return at
}

// pools returns the MachineDeployments, then the MachinePools of a Cluster, each by name.
func (c *Controller) pools(ctx context.Context, cluster intent.Cluster) ([]plan.Pool, error) {
	in := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingFields{indexCluster: cluster.Name}}
	var (
		deployments  clusterv1.MachineDeploymentList
		machinePools clusterv1.MachinePoolList
		pools        []plan.Pool
	)
	if err := c.Client.List(ctx, &deployments, in...); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	if err := c.Client.List(ctx, &machinePools, in...); err != nil {
		return nil, fmt.Errorf("listing MachinePools: %w", err)
	}
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
func (c *Controller) controlPlaneMachines(ctx context.Context, cluster intent.Cluster) ([]time.Time, error) {
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	err := c.Client.List(ctx, machines, client.InNamespace(cluster.Namespace),
		client.MatchingFields{lookup.IndexLabel: cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
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
// it is not set or some of them have been replaced for it already.
func rolloutOf(after metav1.Time, created []time.Time) time.Time {
	if slices.ContainsFunc(created, func(t time.Time) bool { return !t.Before(after.Time) }) {
		return time.Time{}
	}
	return after.Time
}

// foreignUser returns a pool of another Cluster that uses the template too, or nil.
func (c *Controller) foreignUser(ctx context.Context, cluster intent.Cluster, o bootstrapObject) (*plan.Pool, error) {
	if o.kind != plan.KindTemplate {
		return nil, nil //nolint:nilnil // "no other user" is an answer, not an error
	}
	var deployments clusterv1.MachineDeploymentList
	if err := c.Client.List(ctx, &deployments, client.InNamespace(cluster.Namespace), client.MatchingFields{lookup.IndexBootstrap: o.object.GetName()}); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments of %s: %w", o, err)
	}
	var others []plan.Pool
	for i := range deployments.Items {
		if p := plan.PoolOf(&deployments.Items[i]); p.Cluster != cluster.Name && p.Bootstrap.Kind == plan.KindTemplate {
			others = append(others, p)
		}
	}
	if len(others) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	first := slices.MinFunc(others, func(a, b plan.Pool) int { return cmp.Compare(a.Object, b.Object) })
	return &first, nil
}

// get reads an object from the cache and reports whether it exists.
func (c *Controller) get(ctx context.Context, namespace, name string, object client.Object) (bool, error) {
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s/%s: %w", namespace, name, err)
	}
	return true, nil
}
