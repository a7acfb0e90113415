package slim

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Cluster is a clusterv1.Cluster with what is read of its spec, and the conditions that are read.
type Cluster struct {
	metadata `json:"metadata"`

	Spec   *clusterv1.ClusterSpec   `json:"spec,omitempty"`
	Status *clusterv1.ClusterStatus `json:"status,omitempty"`

	paused, provisioned          optional[bool]
	network                      clusterv1.ClusterNetwork
	endpoint                     clusterv1.APIEndpoint
	controlPlane, infrastructure reference
	topology                     *clusterv1.Topology
	conditions                   []condition
}

// DeepCopyObject implements runtime.Object.
func (o *Cluster) DeepCopyObject() runtime.Object {
	c := *o
	c.Spec, c.Status = o.Spec.DeepCopy(), o.Status.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Cluster) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.paused, o.network = optionally(spec.Paused), *spec.ClusterNetwork.DeepCopy() // without the spare room of lists
		o.endpoint = spec.ControlPlaneEndpoint
		o.controlPlane, o.infrastructure = o.reference(spec.ControlPlaneRef), o.reference(spec.InfrastructureRef)
		o.topology = topology(&spec.Topology)
		o.Spec = nil
	}
	if status := o.Status; status != nil {
		o.provisioned = optionally(status.Initialization.InfrastructureProvisioned)
		o.conditions = conditionsOf(status.Conditions, contract.ConditionProxyConfigured,
			contract.ConditionProxyPublished, clusterv1.ClusterTopologyReconciledCondition)
		o.Status = nil
	}
}

// Into fills in the Cluster.
func (o *Cluster) Into(whole *clusterv1.Cluster) {
	*whole = clusterv1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: clusterv1.ClusterKind},
		ObjectMeta: o.metadata.whole(),
		Spec: clusterv1.ClusterSpec{
			Paused: o.paused.whole(), ClusterNetwork: *o.network.DeepCopy(), ControlPlaneEndpoint: o.endpoint,
			ControlPlaneRef: o.controlPlane.whole(), InfrastructureRef: o.infrastructure.whole(),
		},
		Status: clusterv1.ClusterStatus{
			Conditions:     each(o.conditions, condition.whole),
			Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: o.provisioned.whole()},
		},
	}
	if o.topology != nil {
		o.topology.DeepCopyInto(&whole.Spec.Topology)
	}
}

// ControlPlane is a controlplanev1.KubeadmControlPlane with its bootstrap spec, its versions, rollout.after, and
// whether there are Machines.
type ControlPlane struct {
	metadata `json:"metadata"`

	Spec   *controlplanev1.KubeadmControlPlaneSpec   `json:"spec,omitempty"`
	Status *controlplanev1.KubeadmControlPlaneStatus `json:"status,omitempty"`

	version, reached shared[string]
	after            *metav1.Time
	bootstrap        bootstrap
	replicas         optional[int32]
	conditions       []condition
}

// DeepCopyObject implements runtime.Object.
func (o *ControlPlane) DeepCopyObject() runtime.Object {
	c := *o
	c.Spec, c.Status = o.Spec.DeepCopy(), o.Status.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *ControlPlane) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.version, o.after = sharedOf(spec.Version), after(spec.Rollout.After)
		o.bootstrap = bootstrapOf(&spec.KubeadmConfigSpec)
		o.Spec = nil
	}
	if status := o.Status; status != nil {
		o.replicas = optionally(status.Replicas)
		o.reached = sharedOf(status.Version) //nolint:staticcheck // the field of the contract
		o.conditions = conditionsOf(status.Conditions, clusterv1.PausedCondition)
		o.Status = nil
	}
}

// Into fills in the KubeadmControlPlane.
func (o *ControlPlane) Into(whole *controlplanev1.KubeadmControlPlane) {
	*whole = controlplanev1.KubeadmControlPlane{
		TypeMeta: metav1.TypeMeta{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane",
		},
		ObjectMeta: o.metadata.whole(),
		Spec: controlplanev1.KubeadmControlPlaneSpec{
			Version: o.version.value(), Rollout: controlplanev1.KubeadmControlPlaneRolloutSpec{After: valueOf(o.after)},
			KubeadmConfigSpec: o.bootstrap.whole(),
		},
		Status: controlplanev1.KubeadmControlPlaneStatus{Version: o.reached.value()}, //nolint:staticcheck // as above
	}
	whole.Status.Conditions, whole.Status.Replicas = each(o.conditions, condition.whole), o.replicas.whole()
}

// Template is a bootstrapv1.KubeadmConfigTemplate with its bootstrap spec and its metadata for Machines.
type Template struct {
	metadata `json:"metadata"`

	Spec *bootstrapv1.KubeadmConfigTemplateSpec `json:"spec,omitempty"`

	machines  *clusterv1.ObjectMeta // few have any
	bootstrap bootstrap
}

// DeepCopyObject implements runtime.Object.
func (o *Template) DeepCopyObject() runtime.Object {
	c := *o
	c.Spec = o.Spec.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Template) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		if of := &spec.Template.ObjectMeta; of.Labels != nil || of.Annotations != nil {
			o.machines = of.DeepCopy()
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
		ObjectMeta: o.metadata.whole(),
		Spec: bootstrapv1.KubeadmConfigTemplateSpec{Template: bootstrapv1.KubeadmConfigTemplateResource{
			Spec: o.bootstrap.whole(),
		}},
	}
	if o.machines != nil {
		o.machines.DeepCopyInto(&whole.Spec.Template.ObjectMeta)
	}
}

// Config is a bootstrapv1.KubeadmConfig with its bootstrap spec, and whether there is bootstrap data.
type Config struct {
	metadata `json:"metadata"`

	Spec   *bootstrapv1.KubeadmConfigSpec   `json:"spec,omitempty"`
	Status *bootstrapv1.KubeadmConfigStatus `json:"status,omitempty"`

	bootstrap  bootstrap
	secret     string
	conditions []condition
}

// DeepCopyObject implements runtime.Object.
func (o *Config) DeepCopyObject() runtime.Object {
	c := *o
	c.Spec, c.Status = o.Spec.DeepCopy(), o.Status.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Config) Keep() {
	o.keep()
	if o.Spec != nil {
		o.bootstrap, o.Spec = bootstrapOf(o.Spec), nil
	}
	if status := o.Status; status != nil {
		o.secret = o.own(status.DataSecretName)
		o.conditions = conditionsOf(status.Conditions, bootstrapv1.KubeadmConfigDataSecretAvailableCondition)
		o.Status = nil
	}
}

// Into fills in the KubeadmConfig.
func (o *Config) Into(whole *bootstrapv1.KubeadmConfig) {
	*whole = bootstrapv1.KubeadmConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfig"},
		ObjectMeta: o.metadata.whole(),
		Spec:       o.bootstrap.whole(),
		Status: bootstrapv1.KubeadmConfigStatus{
			DataSecretName: o.secret, Conditions: each(o.conditions, condition.whole),
		},
	}
}

// Deployment is a clusterv1.MachineDeployment with the references of its Machines, and rollout.after.
type Deployment struct {
	metadata `json:"metadata"`

	Spec *clusterv1.MachineDeploymentSpec `json:"spec,omitempty"`

	cluster string
	after   *metav1.Time
	machine machine
}

// DeepCopyObject implements runtime.Object.
func (o *Deployment) DeepCopyObject() runtime.Object {
	c := *o
	c.Spec = o.Spec.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Deployment) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.cluster, o.after, o.machine = o.own(spec.ClusterName), after(spec.Rollout.After), o.machineOf(&spec.Template.Spec)
		o.Spec = nil
	}
}

// Into fills in the MachineDeployment.
func (o *Deployment) Into(whole *clusterv1.MachineDeployment) {
	*whole = clusterv1.MachineDeployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineDeployment"},
		ObjectMeta: o.metadata.whole(),
		Spec:       clusterv1.MachineDeploymentSpec{ClusterName: o.cluster},
	}
	whole.Spec.Rollout.After, whole.Spec.Template.Spec = valueOf(o.after), o.machine.whole()
}

// Pool is a clusterv1.MachinePool with the references of its Machines.
type Pool struct {
	metadata `json:"metadata"`

	Spec *clusterv1.MachinePoolSpec `json:"spec,omitempty"`

	cluster string
	machine machine
}

// DeepCopyObject implements runtime.Object.
func (o *Pool) DeepCopyObject() runtime.Object {
	c := *o
	c.Spec = o.Spec.DeepCopy()
	return &c
}

// Keep implements Kept.
func (o *Pool) Keep() {
	o.keep()
	if spec := o.Spec; spec != nil {
		o.cluster, o.machine, o.Spec = o.own(spec.ClusterName), o.machineOf(&spec.Template.Spec), nil
	}
}

// Into fills in the MachinePool.
func (o *Pool) Into(whole *clusterv1.MachinePool) {
	*whole = clusterv1.MachinePool{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool"},
		ObjectMeta: o.metadata.whole(),
		Spec:       clusterv1.MachinePoolSpec{ClusterName: o.cluster},
	}
	whole.Spec.Template.Spec = o.machine.whole()
}

// after returns a time that few objects have.
func after(t metav1.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func valueOf[T any](value *T) (v T) {
	if value != nil {
		v = *value
	}
	return v
}
