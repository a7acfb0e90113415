// Package kinds has the one form in which this program reads Cluster API's objects: a struct for each kind, under
// Cluster API's group, version and kind, with exactly the fields that are read. All decoders fill these structs, so
// that a decision cannot read a field that one of them leaves out.
//
// Never send such an object to the API server whole: it would lose the fields that are not read. Writes are JSON
// patches or server-side applies of own fields.
//
// +kubebuilder:object:generate=true
package kinds

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// AddToScheme adds the kinds to a scheme that does not have Cluster API's own types of them.
func AddToScheme(scheme *runtime.Scheme) error {
	for _, group := range []struct {
		version schema.GroupVersion
		objects []runtime.Object
	}{
		{clusterv1.GroupVersion, []runtime.Object{
			&Cluster{}, &ClusterList{}, &ClusterClass{}, &ClusterClassList{}, &Machine{}, &MachineList{},
			&MachineDeployment{}, &MachineDeploymentList{}, &MachinePool{}, &MachinePoolList{},
		}},
		{controlplanev1.GroupVersion, []runtime.Object{&KubeadmControlPlane{}, &KubeadmControlPlaneList{}}},
		{bootstrapv1.GroupVersion, []runtime.Object{
			&KubeadmConfigTemplate{}, &KubeadmConfigTemplateList{}, &KubeadmConfig{}, &KubeadmConfigList{},
		}},
	} {
		scheme.AddKnownTypes(group.version, group.objects...)
		metav1.AddToGroupVersion(scheme, group.version)
	}
	return nil
}

// Cluster is Cluster API's Cluster.
//
// +kubebuilder:object:root=true
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   ClusterSpec   `json:"spec,omitzero"`
	Status ClusterStatus `json:"status,omitzero"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Cluster `json:"items"`
}

// ClusterSpec is the spec of a Cluster.
type ClusterSpec struct {
	Paused               *bool                    `json:"paused,omitempty"`
	ClusterNetwork       clusterv1.ClusterNetwork `json:"clusterNetwork,omitzero"`
	ControlPlaneEndpoint clusterv1.APIEndpoint    `json:"controlPlaneEndpoint,omitzero"`
	ControlPlaneRef      Reference                `json:"controlPlaneRef,omitzero"`
	InfrastructureRef    Reference                `json:"infrastructureRef,omitzero"`
	Topology             *Topology                `json:"topology,omitempty"`
}

// ClusterStatus is the status of a Cluster.
type ClusterStatus struct {
	Conditions     []metav1.Condition    `json:"conditions,omitempty"`
	Initialization ClusterInitialization `json:"initialization,omitzero"`
}

// ClusterInitialization is how far a Cluster is provisioned.
type ClusterInitialization struct {
	InfrastructureProvisioned *bool `json:"infrastructureProvisioned,omitempty"`
	ControlPlaneInitialized   *bool `json:"controlPlaneInitialized,omitempty"`
}

// Topology is the topology of a Cluster with a ClusterClass.
type Topology struct {
	ClassRef ClassRef `json:"classRef,omitzero"`
	// Class and ClassNamespace are those of version v1beta1.
	Class          string `json:"class,omitempty"`
	ClassNamespace string `json:"classNamespace,omitempty"`
	Version        string `json:"version,omitempty"`
	// ControlPlane is nil if the object has none, so that a patch can add it.
	ControlPlane *TopologyControlPlane `json:"controlPlane,omitempty"`
	Workers      TopologyWorkers       `json:"workers,omitzero"`
	Variables    []Variable            `json:"variables,omitempty"`
}

// ClassRef refers to a ClusterClass.
type ClassRef struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// ClassKey returns the ClusterClass of a Cluster; its name is empty if there is none.
func (c *Cluster) ClassKey() types.NamespacedName {
	t := c.Spec.Topology
	if t == nil {
		return types.NamespacedName{}
	}
	key := types.NamespacedName{Namespace: t.ClassRef.Namespace, Name: t.ClassRef.Name}
	if key.Name == "" {
		key = types.NamespacedName{Namespace: t.ClassNamespace, Name: t.Class}
	}
	if key.Namespace == "" {
		key.Namespace = c.Namespace
	}
	return key
}

// TopologyControlPlane is the control plane of a topology.
type TopologyControlPlane struct {
	Variables Overrides `json:"variables,omitzero"`
	// Rollout is nil if the object has none, so that a patch can add it.
	Rollout *Rollout `json:"rollout,omitempty"`
}

// TopologyWorkers are the pools of a topology.
type TopologyWorkers struct {
	MachineDeployments []TopologyMachineDeployment `json:"machineDeployments,omitempty"`
	MachinePools       []TopologyPool              `json:"machinePools,omitempty"`
}

// TopologyPool is a pool of a topology.
type TopologyPool struct {
	Name      string       `json:"name,omitempty"`
	Metadata  PoolMetadata `json:"metadata,omitzero"`
	Variables Overrides    `json:"variables,omitzero"`
}

// TopologyMachineDeployment is a pool of a topology with MachineDeployments.
type TopologyMachineDeployment struct {
	TopologyPool `json:",inline"`

	// Rollout is nil if the object has none, so that a patch can add it.
	Rollout *Rollout `json:"rollout,omitempty"`
}

// PoolMetadata is the metadata of a pool of a topology.
type PoolMetadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Variable is a variable of a topology.
type Variable struct {
	Name  string          `json:"name,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Overrides are the variables of a part of a topology.
type Overrides struct {
	Overrides []Variable `json:"overrides,omitempty"`
}

// ClusterClass is Cluster API's ClusterClass.
//
// +kubebuilder:object:root=true
type ClusterClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Status ClusterClassStatus `json:"status,omitzero"`
}

// ClusterClassList is a list of ClusterClasses.
//
// +kubebuilder:object:root=true
type ClusterClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ClusterClass `json:"items"`
}

// ClusterClassStatus is the status of a ClusterClass.
type ClusterClassStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Variables  []ClassVariable    `json:"variables,omitempty"`
}

// ClassVariable is a variable of a ClusterClass.
type ClassVariable struct {
	Name string `json:"name,omitempty"`
}

// Machine is Cluster API's Machine.
//
// +kubebuilder:object:root=true
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   MachineSpec   `json:"spec,omitzero"`
	Status MachineStatus `json:"status,omitzero"`
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Machine `json:"items"`
}

// MachineSpec is the spec of a Machine.
type MachineSpec struct {
	ClusterName       string           `json:"clusterName,omitempty"`
	Bootstrap         MachineBootstrap `json:"bootstrap,omitzero"`
	InfrastructureRef Reference        `json:"infrastructureRef,omitzero"`
	Version           string           `json:"version,omitempty"`
}

// MachineBootstrap is where the bootstrap data of a Machine comes from.
type MachineBootstrap struct {
	ConfigRef Reference `json:"configRef,omitzero"`
}

// MachineStatus is the status of a Machine.
type MachineStatus struct {
	NodeRef   NodeRef                    `json:"nodeRef,omitzero"`
	Addresses clusterv1.MachineAddresses `json:"addresses,omitempty"`
}

// NodeRef refers to a Node of the workload cluster.
type NodeRef struct {
	Name string `json:"name,omitempty"`
}

// MachineTemplate is the template of the Machines of a pool.
type MachineTemplate struct {
	Spec MachineSpec `json:"spec,omitzero"`
}

// Rollout says when Machines are replaced. The methods of a nil one are those of the empty one.
type Rollout struct {
	After metav1.Time `json:"after,omitzero"`
}

// Time returns After, or the zero time.
func (r *Rollout) Time() time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.After.Time
}

// MachineDeployment is Cluster API's MachineDeployment.
//
// +kubebuilder:object:root=true
type MachineDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec MachineDeploymentSpec `json:"spec,omitzero"`
}

// MachineDeploymentList is a list of MachineDeployments.
//
// +kubebuilder:object:root=true
type MachineDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MachineDeployment `json:"items"`
}

// MachineDeploymentSpec is the spec of a MachineDeployment.
type MachineDeploymentSpec struct {
	ClusterName string          `json:"clusterName,omitempty"`
	Rollout     Rollout         `json:"rollout,omitzero"`
	Template    MachineTemplate `json:"template,omitzero"`
}

// MachinePool is Cluster API's MachinePool.
//
// +kubebuilder:object:root=true
type MachinePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   MachinePoolSpec   `json:"spec,omitzero"`
	Status MachinePoolStatus `json:"status,omitzero"`
}

// MachinePoolList is a list of MachinePools.
//
// +kubebuilder:object:root=true
type MachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MachinePool `json:"items"`
}

// MachinePoolSpec is the spec of a MachinePool.
type MachinePoolSpec struct {
	ClusterName string          `json:"clusterName,omitempty"`
	Template    MachineTemplate `json:"template,omitzero"`
}

// MachinePoolStatus is the status of a MachinePool.
type MachinePoolStatus struct {
	NodeRefs []NodeRef `json:"nodeRefs,omitempty"`
}

// KubeadmControlPlane is Cluster API's KubeadmControlPlane.
//
// +kubebuilder:object:root=true
type KubeadmControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   KubeadmControlPlaneSpec   `json:"spec,omitzero"`
	Status KubeadmControlPlaneStatus `json:"status,omitzero"`
}

// KubeadmControlPlaneList is a list of KubeadmControlPlanes.
//
// +kubebuilder:object:root=true
type KubeadmControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []KubeadmControlPlane `json:"items"`
}

// KubeadmControlPlaneSpec is the spec of a KubeadmControlPlane.
type KubeadmControlPlaneSpec struct {
	Version         string `json:"version,omitempty"`
	MachineTemplate struct {
		// InfrastructureRef is that of version v1beta1.
		InfrastructureRef Reference `json:"infrastructureRef,omitzero"`
		Spec              struct {
			InfrastructureRef Reference `json:"infrastructureRef,omitzero"`
		} `json:"spec,omitzero"`
	} `json:"machineTemplate,omitzero"`
	Rollout           Rollout    `json:"rollout,omitzero"`
	KubeadmConfigSpec *Bootstrap `json:"kubeadmConfigSpec,omitempty"`
}

// KubeadmControlPlaneStatus is the status of a KubeadmControlPlane.
type KubeadmControlPlaneStatus struct {
	Version    string             `json:"version,omitempty"`
	Replicas   *int32             `json:"replicas,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// rollConditions are those of a KubeadmControlPlane that is adding or deleting Machines.
func rollConditions() []string {
	return []string{
		clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition, clusterv1.ScalingDownCondition,
		clusterv1.RemediatingCondition,
	}
}

// IsRolling reports whether Cluster API is adding or deleting Machines of c, as far as it says.
func (o *KubeadmControlPlane) IsRolling() bool {
	return slices.ContainsFunc(o.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Status == metav1.ConditionTrue && slices.Contains(rollConditions(), condition.Type)
	})
}

// KubeadmControlPlaneTemplate is Cluster API's KubeadmControlPlaneTemplate.
//
// +kubebuilder:object:root=true
type KubeadmControlPlaneTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec *KubeadmControlPlaneTemplateSpec `json:"spec,omitempty"`
}

// KubeadmControlPlaneTemplateSpec is the spec of a KubeadmControlPlaneTemplate.
type KubeadmControlPlaneTemplateSpec struct {
	Template *KubeadmControlPlaneTemplateResource `json:"template,omitempty"`
}

// KubeadmControlPlaneTemplateResource is the template of KubeadmControlPlanes.
type KubeadmControlPlaneTemplateResource struct {
	Spec *KubeadmControlPlaneTemplateResourceSpec `json:"spec,omitempty"`
}

// KubeadmControlPlaneTemplateResourceSpec is the spec of a KubeadmControlPlane that is created from the template.
type KubeadmControlPlaneTemplateResourceSpec struct {
	KubeadmConfigSpec *Bootstrap `json:"kubeadmConfigSpec,omitempty"`
}

// KubeadmConfigTemplate is Cluster API's KubeadmConfigTemplate.
//
// +kubebuilder:object:root=true
type KubeadmConfigTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec *KubeadmConfigTemplateSpec `json:"spec,omitempty"`
}

// KubeadmConfigTemplateList is a list of KubeadmConfigTemplates.
//
// +kubebuilder:object:root=true
type KubeadmConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []KubeadmConfigTemplate `json:"items"`
}

// KubeadmConfigTemplateSpec is the spec of a KubeadmConfigTemplate.
type KubeadmConfigTemplateSpec struct {
	Template *KubeadmConfigTemplateResource `json:"template,omitempty"`
}

// KubeadmConfigTemplateResource is the template of KubeadmConfigs.
type KubeadmConfigTemplateResource struct {
	// Metadata is that of the KubeadmConfigs. Only whether there is any is read.
	Metadata Presence   `json:"metadata,omitempty"`
	Spec     *Bootstrap `json:"spec,omitempty"`
}

// KubeadmConfig is Cluster API's KubeadmConfig.
//
// +kubebuilder:object:root=true
type KubeadmConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   *Bootstrap          `json:"spec,omitempty"`
	Status KubeadmConfigStatus `json:"status,omitzero"`
}

// KubeadmConfigList is a list of KubeadmConfigs.
//
// +kubebuilder:object:root=true
type KubeadmConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []KubeadmConfig `json:"items"`
}

// KubeadmConfigStatus is the status of a KubeadmConfig.
type KubeadmConfigStatus struct {
	DataSecretName string             `json:"dataSecretName,omitempty"`
	Conditions     []metav1.Condition `json:"conditions,omitempty"`
}
