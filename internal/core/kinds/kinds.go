// Package kinds reads Cluster API's types: where a bootstrap spec is in an object, what decisions read of it, and what
// of an object a cache keeps.
//
// A cache does not keep whole objects, and this version does not know the fields of later ones. So never send an object
// to the API server whole: writes are JSON patches or server-side applies of own fields.
package kinds

import (
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
		return &controlplanev1.KubeadmControlPlane{}
	case "KubeadmConfigTemplate":
		return &bootstrapv1.KubeadmConfigTemplate{}
	default:
		return &bootstrapv1.KubeadmConfig{}
	}
}

// SpecOf returns the bootstrap spec of an object, nil for an object of another kind.
func SpecOf(object any) *bootstrapv1.KubeadmConfigSpec {
	switch o := object.(type) {
	case *controlplanev1.KubeadmControlPlane:
		return &o.Spec.KubeadmConfigSpec
	case *controlplanev1.KubeadmControlPlaneTemplate:
		return &o.Spec.Template.Spec.KubeadmConfigSpec
	case *bootstrapv1.KubeadmConfigTemplate:
		return &o.Spec.Template.Spec
	case *bootstrapv1.KubeadmConfig:
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
func ViewOf(spec *bootstrapv1.KubeadmConfigSpec) patch.Spec {
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
