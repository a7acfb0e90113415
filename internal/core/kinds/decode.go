package kinds

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1" //nolint:staticcheck // manifests may have it
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1beta1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta1" //nolint:staticcheck // manifests may have it
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // manifests may have it
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"
)

// Decode reads JSON as client-go does: names are case-sensitive. Objects of version v1beta1 are converted, and keep
// their apiVersion. With an error, into has the fields that could be read.
func Decode(text []byte, into any) error {
	switch o := into.(type) {
	case *clusterv1.Cluster:
		return convert(text, o, func(in *clusterv1beta1.Cluster, out *clusterv1.Cluster, s conversion.Scope) error {
			err := clusterv1beta1.Convert_v1beta1_Cluster_To_v1beta2_Cluster(in, out, s)
			out.Spec.InfrastructureRef = reference(in.Spec.InfrastructureRef)
			out.Spec.ControlPlaneRef = reference(in.Spec.ControlPlaneRef)
			return err
		})
	case *clusterv1.Machine:
		return convert(text, o, func(in *clusterv1beta1.Machine, out *clusterv1.Machine, s conversion.Scope) error {
			err := clusterv1beta1.Convert_v1beta1_Machine_To_v1beta2_Machine(in, out, s)
			addReferences(&in.Spec, &out.Spec)
			return err
		})
	case *clusterv1.MachineDeployment:
		return convert(text, o, func(
			in *clusterv1beta1.MachineDeployment, out *clusterv1.MachineDeployment, s conversion.Scope,
		) error {
			err := clusterv1beta1.Convert_v1beta1_MachineDeployment_To_v1beta2_MachineDeployment(in, out, s)
			addReferences(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
			return err
		})
	case *clusterv1.MachinePool:
		return convert(text, o, func(in *clusterv1beta1.MachinePool, out *clusterv1.MachinePool, s conversion.Scope) error {
			err := clusterv1beta1.Convert_v1beta1_MachinePool_To_v1beta2_MachinePool(in, out, s)
			addReferences(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
			return err
		})
	case *controlplanev1.KubeadmControlPlane:
		return convert(text, o, func(
			in *controlplanev1beta1.KubeadmControlPlane, out *controlplanev1.KubeadmControlPlane, s conversion.Scope,
		) error {
			err := controlplanev1beta1.Convert_v1beta1_KubeadmControlPlane_To_v1beta2_KubeadmControlPlane(in, out, s)
			out.Spec.MachineTemplate.Spec.InfrastructureRef = reference(&in.Spec.MachineTemplate.InfrastructureRef)
			return err
		})
	case *controlplanev1.KubeadmControlPlaneTemplate:
		return convert(text, o,
			controlplanev1beta1.Convert_v1beta1_KubeadmControlPlaneTemplate_To_v1beta2_KubeadmControlPlaneTemplate)
	case *bootstrapv1.KubeadmConfigTemplate:
		return convert(text, o, bootstrapv1beta1.Convert_v1beta1_KubeadmConfigTemplate_To_v1beta2_KubeadmConfigTemplate)
	case *bootstrapv1.KubeadmConfig:
		return convert(text, o, bootstrapv1beta1.Convert_v1beta1_KubeadmConfig_To_v1beta2_KubeadmConfig)
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, into) //nolint:wrapcheck // it names the field
}

// object is a pointer to one of Cluster API's types.
type object[T any] interface {
	*T
	BootstrapObject
}

// convert reads an object of one of two versions.
func convert[Old, New any, P object[New]](text []byte, into P,
	convert func(*Old, *New, conversion.Scope) error,
) error {
	var kind metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &kind); err != nil || !isOlder(kind.APIVersion) {
		return kjson.UnmarshalCaseSensitivePreserveInts(text, into) //nolint:wrapcheck // it names the field
	}
	old := new(Old)
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, old)
	err = errors.Join(err, convert(old, into, nil))
	into.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind())
	return err
}

// isOlder reports whether an object is of version v1beta1.
func isOlder(apiVersion string) bool { return strings.HasSuffix(apiVersion, "/v1beta1") }

// addReferences converts the references of a Machine, which the conversions of the API leave to Cluster API's server.
func addReferences(in *clusterv1beta1.MachineSpec, out *clusterv1.MachineSpec) {
	out.Bootstrap.ConfigRef, out.InfrastructureRef = reference(in.Bootstrap.ConfigRef), reference(&in.InfrastructureRef)
}

func reference(in *corev1.ObjectReference) clusterv1.ContractVersionedObjectReference {
	if in == nil {
		return clusterv1.ContractVersionedObjectReference{}
	}
	return clusterv1.ContractVersionedObjectReference{APIGroup: in.GroupVersionKind().Group, Kind: in.Kind, Name: in.Name}
}
