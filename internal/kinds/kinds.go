// Package kinds reads Cluster API's types: where a bootstrap spec is in an object, what decisions read of it, and what
// of an object a cache keeps.
//
// A cache does not keep whole objects, and this version does not know the fields of later ones. So never send an object
// to the API server whole: writes are JSON patches or server-side applies of own fields.
package kinds

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Cluster API's types.
type (
	Cluster                     = clusterv1.Cluster
	ClusterList                 = clusterv1.ClusterList
	ClusterSpec                 = clusterv1.ClusterSpec
	Topology                    = clusterv1.Topology
	Variable                    = clusterv1.ClusterVariable
	ClusterClass                = clusterv1.ClusterClass
	ClusterClassList            = clusterv1.ClusterClassList
	Machine                     = clusterv1.Machine
	MachineList                 = clusterv1.MachineList
	MachineSpec                 = clusterv1.MachineSpec
	MachineStatus               = clusterv1.MachineStatus
	MachineTemplate             = clusterv1.MachineTemplateSpec
	MachineBootstrap            = clusterv1.Bootstrap
	Reference                   = clusterv1.ContractVersionedObjectReference
	MachineDeployment           = clusterv1.MachineDeployment
	MachineDeploymentList       = clusterv1.MachineDeploymentList
	MachineDeploymentSpec       = clusterv1.MachineDeploymentSpec
	MachinePool                 = clusterv1.MachinePool
	MachinePoolList             = clusterv1.MachinePoolList
	MachinePoolSpec             = clusterv1.MachinePoolSpec
	KubeadmControlPlane         = controlplanev1.KubeadmControlPlane
	KubeadmControlPlaneSpec     = controlplanev1.KubeadmControlPlaneSpec
	KubeadmControlPlaneList     = controlplanev1.KubeadmControlPlaneList
	KubeadmControlPlaneTemplate = controlplanev1.KubeadmControlPlaneTemplate
	KubeadmConfigTemplate       = bootstrapv1.KubeadmConfigTemplate
	KubeadmConfigTemplateList   = bootstrapv1.KubeadmConfigTemplateList
	KubeadmConfig               = bootstrapv1.KubeadmConfig
	KubeadmConfigList           = bootstrapv1.KubeadmConfigList
	Bootstrap                   = bootstrapv1.KubeadmConfigSpec
)

// BootstrapObject is an object with a bootstrap spec.
type BootstrapObject interface {
	metav1.Object
	runtime.Object
}

// AddToScheme adds the types to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.SchemeBuilder{clusterv1.AddToScheme, controlplanev1.AddToScheme, bootstrapv1.AddToScheme}
	return builder.AddToScheme(scheme) //nolint:wrapcheck // it names the type
}

// NewBootstrapObject returns an empty object of a kind: KubeadmControlPlane, KubeadmConfigTemplate, or else
// KubeadmConfig.
func NewBootstrapObject(kind string) BootstrapObject {
	switch kind {
	case "KubeadmControlPlane":
		return &KubeadmControlPlane{}
	case "KubeadmConfigTemplate":
		return &KubeadmConfigTemplate{}
	default:
		return &KubeadmConfig{}
	}
}

// SpecOf returns the bootstrap spec of an object, nil for an object of another kind.
func SpecOf(object any) *Bootstrap {
	switch o := object.(type) {
	case *KubeadmControlPlane:
		return &o.Spec.KubeadmConfigSpec
	case *KubeadmControlPlaneTemplate:
		return &o.Spec.Template.Spec.KubeadmConfigSpec
	case *KubeadmConfigTemplate:
		return &o.Spec.Template.Spec
	case *KubeadmConfig:
		return &o.Spec
	}
	return nil
}

// View returns the part of an object's bootstrap spec on which decisions are made; that of another kind is empty.
func View(object any) patch.Spec {
	if spec := SpecOf(object); spec != nil {
		return ViewOf(spec)
	}
	return patch.Spec{}
}

// maxIgnition is the longest additionalConfig that is read, in bytes: twice what the API accepts.
const maxIgnition = 64 << 10

// ViewOf returns the part of a bootstrap spec on which decisions are made.
func ViewOf(spec *Bootstrap) patch.Spec {
	view := patch.Spec{
		PreKubeadmCommands: spec.PreKubeadmCommands, PostKubeadmCommands: spec.PostKubeadmCommands,
		Format: string(spec.Format),
		ECDSA:  strings.HasPrefix(string(spec.ClusterConfiguration.EncryptionAlgorithm), "ECDSA"),
	}
	for _, node := range []*bootstrapv1.NodeRegistrationOptions{
		&spec.InitConfiguration.NodeRegistration, &spec.JoinConfiguration.NodeRegistration,
	} {
		view.CRISockets = append(view.CRISockets, node.CRISocket)
		for _, arg := range node.KubeletExtraArgs {
			view.KubeletArgs = append(view.KubeletArgs, arg.Name+"="+ptr.Deref(arg.Value, ""))
		}
	}
	for i := range spec.Files {
		view.Files = append(view.Files, fileOf(&spec.Files[i]))
	}
	if text := spec.Ignition.ContainerLinuxConfig.AdditionalConfig; text != "" && len(text) <= maxIgnition {
		var config map[string]map[string]any
		_ = yaml.Unmarshal([]byte(text), &config) // of what cannot be read Cluster API makes no bootstrap data
		view.Ignition = patch.IgnitionFiles(config["storage"]["files"], config["systemd"]["units"])
	}
	return view
}

func fileOf(f *bootstrapv1.File) patch.File {
	return patch.File{
		Path: f.Path, Owner: f.Owner, Permissions: f.Permissions, Content: f.Content,
		ContentFrom: patch.SecretKey{Name: f.ContentFrom.Secret.Name, Key: f.ContentFrom.Secret.Key},
		Encoding:    string(f.Encoding), Other: f.Encoding != "" || ptr.Deref(f.Append, false) || f.ContentFormat != "",
	}
}

// rollConditions are those of a KubeadmControlPlane that is adding or deleting Machines.
func rollConditions() []string {
	return []string{
		clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition, clusterv1.ScalingDownCondition,
		clusterv1.RemediatingCondition,
	}
}

// IsRolling reports whether Cluster API is adding or deleting Machines of a control plane, as far as it says.
func IsRolling(o *KubeadmControlPlane) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Status == metav1.ConditionTrue && slices.Contains(rollConditions(), condition.Type)
	})
}
