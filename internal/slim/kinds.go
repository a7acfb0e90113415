package slim

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Cluster is a clusterv1.Cluster with what is read of its spec, and the conditions that are read.
type Cluster struct {
	head

	Spec   *clusterv1.ClusterSpec   `json:"spec,omitempty"`
	Status *clusterv1.ClusterStatus `json:"status,omitempty"`

	paused, provisioned          *bool
	network                      clusterv1.ClusterNetwork
	endpoint                     clusterv1.APIEndpoint
	controlPlane, infrastructure clusterv1.ContractVersionedObjectReference
	topology                     *clusterv1.Topology
	conditions                   []metav1.Condition
}

// DeepCopyObject implements runtime.Object.
func (o *Cluster) DeepCopyObject() runtime.Object {
	c := *o
	c.head, c.Spec, c.Status = o.duplicate(), o.Spec.DeepCopy(), o.Status.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Cluster) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.paused, o.network, o.endpoint = spec.Paused, network(spec.ClusterNetwork), spec.ControlPlaneEndpoint
		o.controlPlane, o.infrastructure = reference(spec.ControlPlaneRef), reference(spec.InfrastructureRef)
		o.topology = topology(&spec.Topology)
		o.Spec = nil
	}
	if status := o.Status; status != nil {
		o.provisioned = status.Initialization.InfrastructureProvisioned
		o.conditions = conditions(status.Conditions, contract.ConditionProxyConfigured,
			contract.ConditionProxyPublished, clusterv1.ClusterTopologyReconciledCondition)
		o.Status = nil
	}
}

// Into fills in the Cluster.
func (o *Cluster) Into(whole *clusterv1.Cluster) {
	*whole = clusterv1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: clusterv1.ClusterKind},
		ObjectMeta: o.whole(),
		Spec: clusterv1.ClusterSpec{
			Paused: copied(o.paused), ClusterNetwork: *o.network.DeepCopy(), ControlPlaneEndpoint: o.endpoint,
			ControlPlaneRef: o.controlPlane, InfrastructureRef: o.infrastructure,
		},
		Status: clusterv1.ClusterStatus{
			Conditions:     slices.Clone(o.conditions),
			Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: copied(o.provisioned)},
		},
	}
	if o.topology != nil {
		o.topology.DeepCopyInto(&whole.Spec.Topology)
	}
}

// ControlPlane is a controlplanev1.KubeadmControlPlane with its bootstrap spec, its versions, rollout.after, and
// whether there are Machines.
type ControlPlane struct {
	head

	Spec   *controlplanev1.KubeadmControlPlaneSpec   `json:"spec,omitempty"`
	Status *controlplanev1.KubeadmControlPlaneStatus `json:"status,omitempty"`

	version, reached string
	after            metav1.Time
	bootstrap        bootstrap
	replicas         *int32
	conditions       []metav1.Condition
}

// DeepCopyObject implements runtime.Object.
func (o *ControlPlane) DeepCopyObject() runtime.Object {
	c := *o
	c.head, c.Spec, c.Status = o.duplicate(), o.Spec.DeepCopy(), o.Status.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *ControlPlane) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.version, o.after, o.bootstrap = once(spec.Version), spec.Rollout.After, bootstrapOf(&spec.KubeadmConfigSpec)
		o.Spec = nil
	}
	if status := o.Status; status != nil {
		o.replicas = status.Replicas
		o.reached = once(status.Version) //nolint:staticcheck // the field of the contract
		o.conditions = conditions(status.Conditions, clusterv1.PausedCondition)
		o.Status = nil
	}
}

// Into fills in the KubeadmControlPlane.
func (o *ControlPlane) Into(whole *controlplanev1.KubeadmControlPlane) {
	*whole = controlplanev1.KubeadmControlPlane{
		TypeMeta: metav1.TypeMeta{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane",
		},
		ObjectMeta: o.whole(),
		Spec: controlplanev1.KubeadmControlPlaneSpec{
			Version: o.version, Rollout: controlplanev1.KubeadmControlPlaneRolloutSpec{After: o.after},
			KubeadmConfigSpec: o.bootstrap.whole(),
		},
		Status: controlplanev1.KubeadmControlPlaneStatus{Version: o.reached}, //nolint:staticcheck // as above
	}
	whole.Status.Conditions, whole.Status.Replicas = slices.Clone(o.conditions), copied(o.replicas)
}

// Template is a bootstrapv1.KubeadmConfigTemplate with its bootstrap spec and its metadata for Machines.
type Template struct {
	head

	Spec *bootstrapv1.KubeadmConfigTemplateSpec `json:"spec,omitempty"`

	machines  clusterv1.ObjectMeta
	bootstrap bootstrap
}

// DeepCopyObject implements runtime.Object.
func (o *Template) DeepCopyObject() runtime.Object {
	c := *o
	c.head, c.Spec = o.duplicate(), o.Spec.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Template) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.machines = clusterv1.ObjectMeta{
			Labels: share(spec.Template.ObjectMeta.Labels), Annotations: share(spec.Template.ObjectMeta.Annotations),
		}
		o.bootstrap = bootstrapOf(&spec.Template.Spec)
		o.Spec = nil
	}
}

// Into fills in the KubeadmConfigTemplate.
func (o *Template) Into(whole *bootstrapv1.KubeadmConfigTemplate) {
	*whole = bootstrapv1.KubeadmConfigTemplate{
		TypeMeta: metav1.TypeMeta{
			APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfigTemplate",
		},
		ObjectMeta: o.whole(),
		Spec: bootstrapv1.KubeadmConfigTemplateSpec{Template: bootstrapv1.KubeadmConfigTemplateResource{
			ObjectMeta: *o.machines.DeepCopy(), Spec: o.bootstrap.whole(),
		}},
	}
}

// Config is a bootstrapv1.KubeadmConfig with its bootstrap spec, and whether there is bootstrap data.
type Config struct {
	head

	Spec   *bootstrapv1.KubeadmConfigSpec   `json:"spec,omitempty"`
	Status *bootstrapv1.KubeadmConfigStatus `json:"status,omitempty"`

	bootstrap  bootstrap
	secret     string
	conditions []metav1.Condition
}

// DeepCopyObject implements runtime.Object.
func (o *Config) DeepCopyObject() runtime.Object {
	c := *o
	c.head, c.Spec, c.Status = o.duplicate(), o.Spec.DeepCopy(), o.Status.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Config) Keep() {
	o.keep()
	if o.Spec != nil {
		o.bootstrap, o.Spec = bootstrapOf(o.Spec), nil
	}
	if status := o.Status; status != nil {
		o.secret = status.DataSecretName
		o.conditions = conditions(status.Conditions, bootstrapv1.KubeadmConfigDataSecretAvailableCondition)
		o.Status = nil
	}
}

// Into fills in the KubeadmConfig.
func (o *Config) Into(whole *bootstrapv1.KubeadmConfig) {
	*whole = bootstrapv1.KubeadmConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfig"},
		ObjectMeta: o.whole(),
		Spec:       o.bootstrap.whole(),
		Status:     bootstrapv1.KubeadmConfigStatus{DataSecretName: o.secret, Conditions: slices.Clone(o.conditions)},
	}
}

// Deployment is a clusterv1.MachineDeployment with the references of its Machines, and rollout.after.
type Deployment struct {
	head

	Spec *clusterv1.MachineDeploymentSpec `json:"spec,omitempty"`

	cluster string
	after   metav1.Time
	machine machine
}

// DeepCopyObject implements runtime.Object.
func (o *Deployment) DeepCopyObject() runtime.Object {
	c := *o
	c.head, c.Spec = o.duplicate(), o.Spec.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Deployment) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.cluster, o.after, o.machine = once(spec.ClusterName), spec.Rollout.After, machineOf(&spec.Template.Spec)
		o.Spec = nil
	}
}

// Into fills in the MachineDeployment.
func (o *Deployment) Into(whole *clusterv1.MachineDeployment) {
	*whole = clusterv1.MachineDeployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineDeployment"},
		ObjectMeta: o.whole(),
		Spec:       clusterv1.MachineDeploymentSpec{ClusterName: o.cluster},
	}
	whole.Spec.Rollout.After, whole.Spec.Template.Spec = o.after, o.machine.whole()
}

// Pool is a clusterv1.MachinePool with the references of its Machines.
type Pool struct {
	head

	Spec *clusterv1.MachinePoolSpec `json:"spec,omitempty"`

	cluster string
	machine machine
}

// DeepCopyObject implements runtime.Object.
func (o *Pool) DeepCopyObject() runtime.Object {
	c := *o
	c.head, c.Spec = o.duplicate(), o.Spec.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Pool) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.cluster, o.machine, o.Spec = once(spec.ClusterName), machineOf(&spec.Template.Spec), nil
	}
}

// Into fills in the MachinePool.
func (o *Pool) Into(whole *clusterv1.MachinePool) {
	*whole = clusterv1.MachinePool{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool"},
		ObjectMeta: o.whole(),
		Spec:       clusterv1.MachinePoolSpec{ClusterName: o.cluster},
	}
	whole.Spec.Template.Spec = o.machine.whole()
}

func copied[T any](value *T) *T {
	if value == nil {
		return nil
	}
	return new(*value)
}
