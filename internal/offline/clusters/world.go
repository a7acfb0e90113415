package clusters

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// namespace has the objects that Clusters in one namespace see: those in it and, because manifests often omit the
// namespace of some objects, those without one; a Cluster without one sees all. Of two objects of a name, the one in
// the namespace counts. A name that has a default in one object and none in another is the same name.
type namespace struct {
	name       string
	controller Controller
	world      *world.Reader
	// machines are those of control planes. Only addresses are read from them: with a Machine, changes would wait.
	machines *world.Reader
	clusters map[*manifest.Object]*clusterv1.Cluster
	// named are the objects that others refer to.
	named map[reference]*manifest.Object
}

type reference struct{ kind, name string }

// find returns the object to which a kind and a name refer, or nil.
func (n *namespace) find(kind, name string) *manifest.Object {
	return n.named[reference{kind, manifest.SameName(name)}]
}

// nameOf returns the one form of the name to which a kind and a name refer.
func (n *namespace) nameOf(kind, name string) string {
	if o := n.find(kind, name); o != nil {
		name = o.Name()
	}
	return manifest.PartOfName(name)
}

// newNamespace returns what Clusters in a namespace see.
func (p *Passes) newNamespace(key, name string) (*namespace, error) {
	n := &namespace{
		name: name, world: p.base.Of(), machines: p.base.Of(), clusters: map[*manifest.Object]*clusterv1.Cluster{},
		named: map[reference]*manifest.Object{},
	}
	all := slices.Clone(p.objects[key])
	if key != "" {
		all = append(all, p.objects[""]...)
	} else {
		all = append(all, slices.DeleteFunc(slices.Clone(p.Index.Objects),
			func(o *manifest.Object) bool { return o.Namespace() == "" })...)
	}
	all = slices.DeleteFunc(all, func(o *manifest.Object) bool {
		return p.Form(o) == nil && (o.Kind() != "Secret" || o.APIVersion() != "v1")
	})
	for _, o := range all {
		if key := (reference{o.Kind(), manifest.SameName(o.Name())}); key.name != "" && n.named[key] == nil {
			n.named[key] = o
		}
	}
	for _, o := range all {
		n.add(p, o)
	}
	var err error
	n.controller, err = p.Controller(Surroundings{
		Client: discarding{reader: n.world}, Live: live{p.Manifests, n.world, n.machines}, Memory: p.memory, Now: p.Now,
	})
	return n, err
}

// add adds an object.
func (n *namespace) add(p *Passes, o *manifest.Object) {
	counts := n.find(o.Kind(), o.Name()) == o
	switch form := p.Form(o).(type) {
	case nil:
		if counts { // a Secret, of which only the labels are read
			secret := &corev1.Secret{}
			n.place(secret, o)
			if owner, generated := secret.Labels[contract.LabelGenerated]; generated {
				secret.Labels[contract.LabelGenerated] = n.nameOf("Cluster", owner)
				secret.Labels[contract.LabelProxySecret] = "" // render adds it
			}
			n.world.Add(secret)
		}
	case *clusterv1.Cluster:
		n.clusters[o] = form.DeepCopy()
		n.cluster(p, o, n.clusters[o])
		if counts {
			n.world.Add(n.clusters[o])
		}
	case *controlplanev1.KubeadmControlPlane, *bootstrapv1.KubeadmConfigTemplate, *bootstrapv1.KubeadmConfig:
		object, ok := form.(kinds.BootstrapObject).DeepCopyObject().(kinds.BootstrapObject)
		if counts && ok {
			n.place(object, o)
			delete(object.GetLabels(), clusterv1.ClusterNameLabel) // no Machine has it
			n.world.Add(object)
		}
	default:
		if machine, isMachine := form.(*clusterv1.Machine); isMachine {
			machine = machine.DeepCopy()
			n.place(machine, o)
			machine.Labels = map[string]string{clusterv1.ClusterNameLabel: n.nameOf("Cluster", machine.Spec.ClusterName)}
			n.machines.Add(machine)
		}
		if !IsControlPlane(o) && !plan.IsTopologyOwned(o.Labels()) && (IsPool(o) || metav1.GetControllerOf(form) == nil) {
			n.pool(p.Pool(o), o)
		}
	}
}

// place gives an object the name and the metadata that decisions read.
func (n *namespace) place(object metav1.Object, o *manifest.Object) {
	object.SetNamespace(n.name)
	object.SetName(manifest.PartOfName(o.Name()))
	object.SetUID(types.UID(o.Name()))
	object.SetLabels(o.Labels())
	object.SetAnnotations(o.Annotations())
	object.SetOwnerReferences(nil)
	object.SetDeletionTimestamp(nil)
}

// cluster completes a Cluster as Cluster API does. It is not paused: manifests are patched before they are applied.
func (n *namespace) cluster(p *Passes, o *manifest.Object, cluster *clusterv1.Cluster) {
	read := p.Cluster(o)
	n.place(cluster, o)
	delete(cluster.Annotations, clusterv1.PausedAnnotation)
	cluster.Spec.Paused = nil
	if p.All {
		cluster.Labels[contract.LabelEnabled] = contract.LabelEnabledValue
	}
	if !settings.IsEnabled(cluster.Labels) { // a pass removes what an earlier one has added
		cluster.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
	}
	spec := &cluster.Spec
	spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: read.View.EndpointHost, Port: read.View.EndpointPort}
	spec.InfrastructureRef.Kind = read.View.Infrastructure.Kind
	spec.InfrastructureRef.Name = manifest.PartOfName(spec.InfrastructureRef.Name)
	spec.ControlPlaneRef.Name = n.nameOf(plan.KindControlPlane, spec.ControlPlaneRef.Name)
	if !spec.Topology.IsDefined() {
		return
	}
	// The topology controller creates the control plane and the pools; the hook decides about them.
	owned := func(object metav1.Object, pool string) {
		object.SetNamespace(n.name)
		object.SetName("topology/" + cluster.Name + "/" + pool)
		object.SetLabels(map[string]string{
			clusterv1.ClusterTopologyOwnedLabel:                 "",
			clusterv1.ClusterTopologyMachineDeploymentNameLabel: pool,
			clusterv1.ClusterTopologyMachinePoolNameLabel:       pool,
		})
	}
	controlPlane := &controlplanev1.KubeadmControlPlane{}
	owned(controlPlane, "")
	spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindControlPlane, Name: controlPlane.Name}
	n.world.Add(controlPlane)
	for _, asked := range read.Settings.Pools {
		if !asked.HasOwnSecret() {
			continue
		}
		pool, metadata := plan.Pool{Pool: asked, Cluster: cluster.Name}, metav1.ObjectMeta{}
		template := kinds.NewBootstrapObject(pool.BootstrapKind())
		owned(template, asked.Name)
		owned(&metadata, asked.Name)
		pool.Bootstrap = clusterv1.ContractVersionedObjectReference{Kind: pool.BootstrapKind(), Name: template.GetName()}
		n.world.Add(template)
		n.world.Add(formOf(pool, metadata))
	}
}

// pool adds a worker.
func (n *namespace) pool(pool plan.Pool, o *manifest.Object) {
	pool.Cluster = n.nameOf("Cluster", pool.Cluster)
	pool.Bootstrap.Name = n.nameOf(pool.Bootstrap.Kind, pool.Bootstrap.Name)
	metadata := metav1.ObjectMeta{}
	n.place(&metadata, o)
	if !IsPool(o) { // which names no proxy Secret
		metadata.Labels, metadata.Annotations = nil, nil
	}
	n.world.Add(formOf(pool, metadata))
}

// formOf returns a pool as an object.
func formOf(pool plan.Pool, metadata metav1.ObjectMeta) client.Object {
	kind := metav1.TypeMeta{Kind: pool.Kind}
	template := clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
		ClusterName: pool.Cluster, Bootstrap: clusterv1.Bootstrap{ConfigRef: pool.Bootstrap},
		InfrastructureRef: pool.Infrastructure,
	}}
	if pool.BootstrapKind() == plan.KindConfig {
		return &clusterv1.MachinePool{
			TypeMeta: kind, ObjectMeta: metadata, Spec: clusterv1.MachinePoolSpec{ClusterName: pool.Cluster, Template: template},
		}
	}
	return &clusterv1.MachineDeployment{
		TypeMeta: kind, ObjectMeta: metadata,
		Spec: clusterv1.MachineDeploymentSpec{ClusterName: pool.Cluster, Template: template},
	}
}

// live stands for the API server.
type live struct {
	manifests       *Manifests
	world, machines *world.Reader
}

// Get implements client.Reader. Objects of infrastructure providers that are not in the manifests may exist.
func (l live) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	object, ok := into.(*unstructured.Unstructured)
	if !ok {
		return l.world.Get(ctx, key, into, options...)
	}
	o := l.manifests.Lookup(key.Namespace, "", object.GetKind(), key.Name)
	if o == nil {
		return apierrors.NewForbidden(schema.GroupResource{Resource: object.GetKind()}, key.Name, nil)
	}
	object.Object = o.Value()
	return nil
}

// List implements client.Reader.
func (l live) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return l.machines.List(ctx, list, options...)
}

// anyKind knows every kind.
type anyKind struct{ meta.RESTMapper }

// RESTMapping implements meta.RESTMapper.
func (anyKind) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return &meta.RESTMapping{GroupVersionKind: kind.WithVersion("v1")}, nil
}
