package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	proxysource "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// Kinds of bootstrap objects.
const (
	kindControlPlane = "KubeadmControlPlane"
	kindTemplate     = "KubeadmConfigTemplate"
	kindConfig       = "KubeadmConfig"
)

// bootstrapObject is an object with a bootstrap spec that belongs to a Cluster.
type bootstrapObject struct {
	object   client.Object
	kind     string
	spec     patch.Spec
	location patch.Location
	// pools that use the object; none for a control plane.
	pools []pool
	// running reports that a change of the object replaces Machines of a control plane, or comes too late for
	// the bootstrap data of a MachinePool.
	running bool
}

func (o bootstrapObject) String() string { return o.kind + " " + klog.KObj(o.object).String() }

// pool is what matters of a MachineDeployment or MachinePool.
type pool struct {
	kind, name, cluster string
	bootstrap           clusterv1.ContractVersionedObjectReference
	// override is the value of contract.AnnotationSecret.
	override string
}

func (p pool) String() string { return p.kind + " " + p.name }

func poolOf(object client.Object) pool {
	p := pool{name: object.GetName(), override: object.GetAnnotations()[contract.AnnotationSecret]}
	switch o := object.(type) {
	case *clusterv1.MachineDeployment:
		p.kind, p.cluster, p.bootstrap = "MachineDeployment", o.Spec.ClusterName, o.Spec.Template.Spec.Bootstrap.ConfigRef
	case *clusterv1.MachinePool:
		p.kind, p.cluster, p.bootstrap = "MachinePool", o.Spec.ClusterName, o.Spec.Template.Spec.Bootstrap.ConfigRef
	}
	return p
}

// collect reads the bootstrap objects of a Cluster from the cache, the control plane first and then pools by name.
// What is missing or cannot be patched is a finding.
func (c *Controller) collect(ctx context.Context, cluster proxysource.Cluster) ([]bootstrapObject, findings, error) {
	var (
		objects []bootstrapObject
		found   findings
	)
	switch {
	case cluster.ControlPlaneKind == kindControlPlane:
		controlPlane := &controlplanev1.KubeadmControlPlane{}
		exists, err := c.get(ctx, cluster.Namespace, cluster.ControlPlaneName, controlPlane)
		if err != nil {
			return nil, nil, err
		}
		if !exists {
			found.add(contract.ReasonWaitingForObjects, "%s %s/%s does not exist yet", kindControlPlane, cluster.Namespace, cluster.ControlPlaneName)
			break
		}
		running, err := c.hasControlPlaneMachines(ctx, cluster)
		if err != nil {
			return nil, nil, err
		}
		objects = append(objects, newObject(controlPlane, kindControlPlane, &controlPlane.Spec.KubeadmConfigSpec,
			running || controlPlane.Status.Replicas != nil && *controlPlane.Status.Replicas > 0))
	case cluster.ControlPlaneKind != "":
		found.note("%s %s/%s is not a %s and is not patched", cluster.ControlPlaneKind, cluster.Namespace, cluster.ControlPlaneName, kindControlPlane)
	}

	pools, err := c.pools(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range pools {
		switch {
		case p.bootstrap.Name == "":
			found.note("%s brings its own bootstrap data and is not patched", p)
			continue
		case p.kind == "MachineDeployment" && p.bootstrap.Kind != kindTemplate, p.kind == "MachinePool" && p.bootstrap.Kind != kindConfig:
			found.add(contract.ReasonTemplateNotSupported, "%s uses %s %s, which cannot be patched; only kubeadm bootstrap objects can",
				p, p.bootstrap.Kind, p.bootstrap.Name)
			continue
		}
		if known := slices.IndexFunc(objects, func(o bootstrapObject) bool {
			return o.kind == p.bootstrap.Kind && o.object.GetName() == p.bootstrap.Name
		}); known >= 0 {
			objects[known].pools = append(objects[known].pools, p)
			continue
		}
		object, err := c.bootstrapOf(ctx, cluster.Namespace, p)
		if err != nil {
			return nil, nil, err
		}
		if object == nil {
			found.add(contract.ReasonWaitingForObjects, "%s %s/%s does not exist yet", p.bootstrap.Kind, cluster.Namespace, p.bootstrap.Name)
			continue
		}
		object.pools = []pool{p}
		objects = append(objects, *object)
	}
	return objects, found, nil
}

// bootstrapOf reads the bootstrap object of a pool. It returns nil if there is none.
func (c *Controller) bootstrapOf(ctx context.Context, namespace string, p pool) (*bootstrapObject, error) {
	if p.bootstrap.Kind == kindTemplate {
		template := &bootstrapv1.KubeadmConfigTemplate{}
		exists, err := c.get(ctx, namespace, p.bootstrap.Name, template)
		if err != nil || !exists {
			return nil, err
		}
		object := newObject(template, kindTemplate, &template.Spec.Template.Spec, false)
		return &object, nil
	}
	config := &bootstrapv1.KubeadmConfig{}
	exists, err := c.get(ctx, namespace, p.bootstrap.Name, config)
	if err != nil || !exists {
		return nil, err
	}
	object := newObject(config, kindConfig, &config.Spec, config.Status.DataSecretName != "")
	return &object, nil
}

func newObject(object client.Object, kind string, spec *bootstrapv1.KubeadmConfigSpec, running bool) bootstrapObject {
	parents := map[string][]string{
		kindControlPlane: {"/spec", "/spec/kubeadmConfigSpec"},
		kindTemplate:     {"/spec", "/spec/template", "/spec/template/spec"},
		kindConfig:       {"/spec"},
	}[kind]
	missing := 0
	if reflect.DeepEqual(*spec, bootstrapv1.KubeadmConfigSpec{}) {
		missing = 1
	}
	others := *spec
	others.Files, others.PreKubeadmCommands, others.PostKubeadmCommands = nil, nil, nil
	return bootstrapObject{
		object:   object,
		kind:     kind,
		spec:     patch.SpecOf(spec),
		location: patch.Location{Parents: parents, Missing: missing, Others: !reflect.DeepEqual(others, bootstrapv1.KubeadmConfigSpec{})},
		running:  running,
	}
}

// pools returns the MachineDeployments, then the MachinePools of a Cluster, each by name.
func (c *Controller) pools(ctx context.Context, cluster proxysource.Cluster) ([]pool, error) {
	in := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingFields{indexCluster: cluster.Name}}
	var (
		deployments  clusterv1.MachineDeploymentList
		machinePools clusterv1.MachinePoolList
		pools        []pool
	)
	if err := c.Client.List(ctx, &deployments, in...); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	if err := c.Client.List(ctx, &machinePools, in...); err != nil {
		return nil, fmt.Errorf("listing MachinePools: %w", err)
	}
	for i := range deployments.Items {
		pools = append(pools, poolOf(&deployments.Items[i]))
	}
	for i := range machinePools.Items {
		pools = append(pools, poolOf(&machinePools.Items[i]))
	}
	slices.SortStableFunc(pools, func(a, b pool) int {
		if a.kind != b.kind {
			return compare(a.kind, b.kind)
		}
		return compare(a.name, b.name)
	})
	return pools, nil
}

func (c *Controller) hasControlPlaneMachines(ctx context.Context, cluster proxysource.Cluster) (bool, error) {
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	err := c.Client.List(ctx, machines, client.InNamespace(cluster.Namespace),
		client.MatchingFields{indexLabel: cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return false, fmt.Errorf("listing control-plane Machines: %w", err)
	}
	return len(machines.Items) > 0, nil
}

// foreignUser returns a pool of another Cluster that uses the template too, or nil.
func (c *Controller) foreignUser(ctx context.Context, cluster proxysource.Cluster, o bootstrapObject) (*pool, error) {
	if o.kind != kindTemplate {
		return nil, nil //nolint:nilnil // "no other user" is an answer, not an error
	}
	var deployments clusterv1.MachineDeploymentList
	if err := c.Client.List(ctx, &deployments, client.InNamespace(cluster.Namespace), client.MatchingFields{indexBootstrap: o.object.GetName()}); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments of %s: %w", o, err)
	}
	var others []pool
	for i := range deployments.Items {
		if p := poolOf(&deployments.Items[i]); p.cluster != cluster.Name && p.bootstrap.Kind == kindTemplate {
			others = append(others, p)
		}
	}
	if len(others) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	first := slices.MinFunc(others, func(a, b pool) int { return compare(a.name, b.name) })
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
