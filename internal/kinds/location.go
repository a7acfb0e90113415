package kinds

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// BootstrapObject is an object with a bootstrap spec.
//
// +kubebuilder:object:generate=false
type BootstrapObject interface {
	metav1.Object
	runtime.Object
	// Bootstrap returns the bootstrap spec, nil if the object has none.
	Bootstrap() *Bootstrap
	// Location returns where the bootstrap spec is in the object.
	Location() patch.Location
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

// Bootstrap implements BootstrapObject.
func (o *KubeadmControlPlane) Bootstrap() *Bootstrap { return o.Spec.KubeadmConfigSpec }

// Location implements BootstrapObject. An API server requires other fields of spec.
func (o *KubeadmControlPlane) Location() patch.Location {
	return locate(o.APIVersion, o.Bootstrap(), "/spec", "/spec/kubeadmConfigSpec").in(1)
}

// Bootstrap implements BootstrapObject.
func (o *KubeadmControlPlaneTemplate) Bootstrap() *Bootstrap {
	if o.Spec == nil || o.Spec.Template == nil || o.Spec.Template.Spec == nil {
		return nil
	}
	return o.Spec.Template.Spec.KubeadmConfigSpec
}

// Location implements BootstrapObject. The parents have other fields.
func (o *KubeadmControlPlaneTemplate) Location() patch.Location {
	at := locate(o.APIVersion, o.Bootstrap(), "/spec", "/spec/template", "/spec/template/spec",
		"/spec/template/spec/kubeadmConfigSpec")
	switch {
	case o.Spec == nil:
		at.Missing = 4
	case o.Spec.Template == nil:
		at.Missing = 3
	case o.Spec.Template.Spec == nil:
		at.Missing = 2
	}
	return at.in(1)
}

// Bootstrap implements BootstrapObject.
func (o *KubeadmConfigTemplate) Bootstrap() *Bootstrap {
	if o.Spec == nil || o.Spec.Template == nil {
		return nil
	}
	return o.Spec.Template.Spec
}

// Location implements BootstrapObject.
func (o *KubeadmConfigTemplate) Location() patch.Location {
	at := locate(o.APIVersion, o.Bootstrap(), "/spec", "/spec/template", "/spec/template/spec")
	switch {
	case o.Spec == nil:
		at.Missing = 3
	case o.Spec.Template == nil:
		at.Missing = 2
	case bool(o.Spec.Template.Metadata):
		return at.in(1)
	}
	return at.in(3)
}

// Bootstrap implements BootstrapObject.
func (o *KubeadmConfig) Bootstrap() *Bootstrap { return o.Spec }

// Location implements BootstrapObject.
func (o *KubeadmConfig) Location() patch.Location { return locate(o.APIVersion, o.Spec, "/spec").in(1) }

type location patch.Location

// locate returns the location of a bootstrap spec with its parents.
func locate(apiVersion string, b *Bootstrap, parents ...string) location {
	at := location{Parents: parents}
	switch {
	case b == nil:
		at.Missing = 1
	case b.Alone && !strings.HasSuffix(apiVersion, "/v1beta1"): // there, parents may be empty, and some are required
		at.Alone = len(parents)
	}
	return at
}

// in returns the location if at most some of the last parents hold nothing but the next one.
func (at location) in(parents int) patch.Location {
	at.Alone = min(at.Alone, parents)
	return patch.Location(at)
}
