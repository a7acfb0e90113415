package hooks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// template is one item of a request.
type template struct {
	uid       types.UID
	object    []byte // in JSON
	variables variables
	holder    runtimehooksv1.HolderReference

	// Of the holder in the builtin variable, by readHolder.
	version, topologyName string
	annotations           map[string]string
}

// Fields of holders whose templates matter.
const (
	fieldControlPlane = "spec.controlPlaneRef"
	fieldBootstrap    = "spec.template.spec.bootstrap.configRef"
	// fieldInfrastructure holds the machine template of a pool, which identifies Windows pools.
	fieldInfrastructure = "spec.template.spec.infrastructureRef"
)

// isControlPlane reports whether t is the template of the control plane.
func (t *template) isControlPlane() bool {
	return t.holder.FieldPath == fieldControlPlane && t.holder.Kind == "Cluster"
}

// isPool reports whether t is the bootstrap template of a pool.
func (t *template) isPool() bool {
	return t.holder.FieldPath == fieldBootstrap &&
		(t.holder.Kind == settings.KindMachineDeployment || t.holder.Kind == settings.KindMachinePool)
}

// poolKey identifies a pool in a request.
type poolKey struct{ kind, name string }

// key returns the pool that t is a template of.
func (t *template) key() poolKey { return poolKey{t.holder.Kind, t.holder.Name} }

// readHolder reads the control plane or the pool of t.
func (t *template) readHolder() error {
	b, err := t.variables.builtins()
	switch {
	case err != nil:
		return err
	case b.ControlPlane != nil:
		t.version = b.ControlPlane.Version
		_, t.annotations = metadata(b.ControlPlane.Metadata)
	case b.MachineDeployment != nil:
		t.version, t.topologyName = b.MachineDeployment.Version, b.MachineDeployment.TopologyName
		_, t.annotations = metadata(b.MachineDeployment.Metadata)
	case b.MachinePool != nil:
		t.version, t.topologyName = b.MachinePool.Version, b.MachinePool.TopologyName
		_, t.annotations = metadata(b.MachinePool.Metadata)
	}
	return nil
}

// isForWindows reports whether t is a machine template that asks for Windows. The pool of key then is not patched.
func (t *template) isForWindows() (bool, error) {
	if t.holder.FieldPath != fieldInfrastructure || t.object == nil {
		return false, nil
	}
	var object struct {
		Spec any `json:"spec"`
	}
	if err := kinds.Decode(t.object, &object); err != nil {
		return false, fmt.Errorf("reading the %s of %s: %w", t.holder.FieldPath, t.holder.Kind, err)
	}
	return patch.WindowsField(object.Spec) != "", nil
}

// decode reads the template of the control plane or of a pool. It returns nil for a kind that cannot be patched, and
// for an object whose fields do not have the types of the API: the API server refuses it.
func (t *template) decode() kinds.BootstrapObject {
	var (
		object kinds.BootstrapObject = &bootstrapv1.KubeadmConfigTemplate{}
		want                         = bootstrapv1.GroupVersion.WithKind(plan.KindTemplate)
	)
	if t.isControlPlane() {
		object, want = &controlplanev1.KubeadmControlPlaneTemplate{},
			controlplanev1.GroupVersion.WithKind("KubeadmControlPlaneTemplate")
	}
	readable := kinds.Decode(t.object, object) == nil
	if !readable || object.GetObjectKind().GroupVersionKind().GroupKind() != want.GroupKind() {
		return nil
	}
	return object
}
