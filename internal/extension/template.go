package extension

import (
	"fmt"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// maxValues is how many JSON values a decoded template may have. Each may take some hundred bytes. The API server
// accepts 200 files and 2,000 commands in a bootstrap spec.
const maxValues = 50_000

// checkSize returns an error for a template with more values.
func checkSize(text []byte) error {
	if kinds.HasMore(text, maxValues) {
		return fmt.Errorf("it has more than %d values", maxValues)
	}
	return nil
}

// Template reads the template of the control plane or of a pool. It returns nil for a kind that cannot be patched, and
// for an object whose fields do not have the types of the API: the API server refuses it.
func (i *Item) Template() (kinds.BootstrapObject, error) {
	if err := checkSize(i.Object); err != nil {
		return nil, i.failed(err)
	}
	var (
		object kinds.BootstrapObject = &kinds.KubeadmConfigTemplate{}
		want                         = bootstrapv1.GroupVersion.WithKind(plan.KindTemplate)
	)
	if i.IsControlPlane() {
		object, want = &kinds.KubeadmControlPlaneTemplate{},
			controlplanev1.GroupVersion.WithKind("KubeadmControlPlaneTemplate")
	}
	readable := kinds.Decode(i.Object, object) == nil
	if !readable || object.GetObjectKind().GroupVersionKind().GroupKind() != want.GroupKind() {
		return nil, nil //nolint:nilnil // see above
	}
	return object, nil
}
