package patch_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	bootstrapadmission "sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks/admission"
	controlplaneadmission "sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks/admission"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// typed decodes a document into the type of the API. Fields that it does not know are dropped.
func typed(t *testing.T, d document) bootstrapv1.KubeadmConfigSpec {
	t.Helper()
	encoded, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var spec bootstrapv1.KubeadmConfigSpec
	if err := json.Unmarshal(encoded, &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestEnsure_IsAdmittedByClusterAPI asks Cluster API's own admission webhooks: about new objects, and about the way to
// the patched object and back.
func TestEnsure_IsAdmittedByClusterAPI(t *testing.T) {
	t.Parallel()
	plainSpec, patchedSpec := typed(t, parse(t, ownUser)), typed(t, ensure(t, parse(t, ownUser), recipe(t, patch.Options{})))
	meta := metav1.ObjectMeta{Name: "test", Namespace: "team"}

	controlPlane := func(spec bootstrapv1.KubeadmConfigSpec) *controlplanev1.KubeadmControlPlane {
		object := &controlplanev1.KubeadmControlPlane{ObjectMeta: meta}
		object.Spec.Version, object.Spec.Replicas, object.Spec.KubeadmConfigSpec = "v1.36.3", new(int32(3)),
			*spec.DeepCopy()
		object.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "DemoMachineTemplate", Name: "test",
		}
		return object
	}
	kcp := &controlplaneadmission.KubeadmControlPlane{}
	before, after := controlPlane(plainSpec), controlPlane(patchedSpec)
	for _, object := range []*controlplanev1.KubeadmControlPlane{before, after} {
		if err := kcp.Default(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	_, kcpCreated := kcp.ValidateCreate(t.Context(), after)
	_, kcpPatched := kcp.ValidateUpdate(t.Context(), before, after)
	_, kcpRestored := kcp.ValidateUpdate(t.Context(), after, before)

	template := func(spec bootstrapv1.KubeadmConfigSpec) *bootstrapv1.KubeadmConfigTemplate {
		object := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: meta}
		object.Spec.Template.Spec = *spec.DeepCopy()
		return object
	}
	kct := &bootstrapadmission.KubeadmConfigTemplate{}
	_, kctCreated := kct.ValidateCreate(t.Context(), template(patchedSpec))
	_, kctPatched := kct.ValidateUpdate(t.Context(), template(plainSpec), template(patchedSpec))

	config := &bootstrapv1.KubeadmConfig{ObjectMeta: meta, Spec: patchedSpec}
	_, configCreated := (&bootstrapadmission.KubeadmConfig{}).ValidateCreate(t.Context(), config)
	for what, err := range map[string]error{
		"creating the KubeadmControlPlane": kcpCreated, "patching the KubeadmControlPlane": kcpPatched, "restoring the KubeadmControlPlane": kcpRestored,
		"creating the KubeadmConfigTemplate": kctCreated, "patching the KubeadmConfigTemplate": kctPatched, "creating the KubeadmConfig": configCreated,
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	// Had a file of the user been doubled instead of reported, they would say so.
	config = config.DeepCopy()
	config.Spec.Files = append(config.Spec.Files, config.Spec.Files[1])
	if _, err := (&bootstrapadmission.KubeadmConfig{}).ValidateCreate(t.Context(), config); err == nil {
		t.Error("a path that is there twice was admitted: the webhooks were not asked")
	}
}
