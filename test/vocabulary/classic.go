package vocabulary

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	infrastructureGroup = "infrastructure.cluster.x-k8s.io"
	machineTemplate     = "DemoMachineTemplate"
)

// Classic is a Cluster without a ClusterClass, with the objects that templates of clusterctl bring: a control plane, a
// MachineDeployment with its KubeadmConfigTemplate, called -md, and a MachinePool with its KubeadmConfig, called -mp.
type Classic struct {
	Cluster      *clusterv1.Cluster
	ControlPlane *controlplanev1.KubeadmControlPlane
	Deployment   *clusterv1.MachineDeployment
	// Template has no bootstrap spec: what is added to it must go without a trace.
	Template *bootstrapv1.KubeadmConfigTemplate
	Pool     *clusterv1.MachinePool
	Config   *bootstrapv1.KubeadmConfig
}

// NewClassic returns a Cluster of a namespace and a name, without the label, whose Machines are made of a machine
// template; see MachineTemplate. None of it is created.
func NewClassic(ns, name, infrastructure string) Classic {
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	c := Classic{
		Cluster:      &clusterv1.Cluster{ObjectMeta: object(name)},
		ControlPlane: &controlplanev1.KubeadmControlPlane{ObjectMeta: object(name)},
		Deployment:   &clusterv1.MachineDeployment{ObjectMeta: object(name + "-md")},
		Template:     &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: object(name + "-md")},
		Pool:         &clusterv1.MachinePool{ObjectMeta: object(name + "-mp")},
		Config:       &bootstrapv1.KubeadmConfig{ObjectMeta: object(name + "-mp")},
	}
	c.Cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.244.0.0/16"}
	c.Cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: name + ".example.com", Port: 6443}
	c.Cluster.Spec.ControlPlaneRef = Ref("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", name)
	c.Cluster.Spec.InfrastructureRef = Ref(infrastructureGroup, "DockerCluster", name)

	c.ControlPlane.Spec.Version = "v1.36.3"
	c.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef = Ref(infrastructureGroup, machineTemplate, infrastructure)
	c.ControlPlane.Spec.KubeadmConfigSpec.PostKubeadmCommands = []string{"echo done"}

	c.Deployment.Spec.ClusterName = name
	c.Deployment.Spec.Selector.MatchLabels = map[string]string{"pool": name}
	c.Deployment.Spec.Template.Labels = c.Deployment.Spec.Selector.MatchLabels
	c.Deployment.Spec.Template.Spec = MachineSpec(name, infrastructure, "KubeadmConfigTemplate", name+"-md")
	c.Template.Spec.Template.ObjectMeta.Labels = map[string]string{"own": "label"}

	c.Pool.Spec.ClusterName = name
	c.Pool.Spec.Template.Spec = MachineSpec(name, infrastructure, "KubeadmConfig", name+"-mp")
	c.Config.Spec.JoinConfiguration.NodeRegistration.Name = "own"
	return c
}

// Ref is a reference to an object of a group, a kind and a name.
func Ref(group, kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: name}
}

// MachineSpec is the spec of Machines of a Cluster, made of a machine template, with bootstrap data of an object of a
// kind.
func MachineSpec(cluster, infrastructure, kind, bootstrap string) clusterv1.MachineSpec {
	spec := clusterv1.MachineSpec{ClusterName: cluster, InfrastructureRef: Ref(infrastructureGroup, machineTemplate,
		infrastructure)}
	spec.Bootstrap.ConfigRef = Ref("bootstrap.cluster.x-k8s.io", kind, bootstrap)
	return spec
}

// MachineTemplate is a machine template of the stand-in infrastructure provider.
func MachineTemplate(ns, name string) *unstructured.Unstructured {
	template := &unstructured.Unstructured{}
	template.SetAPIVersion(infrastructureGroup + "/v1beta2")
	template.SetKind(machineTemplate)
	template.SetNamespace(ns)
	template.SetName(name)
	return template
}
