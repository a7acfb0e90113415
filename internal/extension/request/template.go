package request

import (
	"bytes"
	"fmt"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/specread"
)

// maxValues is how many JSON values a decoded template may have. Each may take some hundred bytes. The API server
// accepts 200 files and 2,000 commands in a bootstrap spec.
const maxValues = 50_000

// checkSize returns an error for a template with more values.
func checkSize(text []byte) error {
	if jsonread.HasMore(text, maxValues) {
		return fmt.Errorf("it has more than %d values", maxValues)
	}
	return nil
}

// Template is a bootstrap template of a request.
type Template struct {
	// Supported reports whether the template is of a kind that can be patched.
	Supported bool
	specread.Object
}

// Template reads the template of the control plane or of a pool. It decodes only what decisions read.
func (i *Item) Template() (Template, error) {
	kind, group := plan.KindTemplate, bootstrapv1.GroupVersion.Group
	parents := []string{"/spec", "/spec/template", "/spec/template/spec"} // where the bootstrap spec is
	if i.IsControlPlane() {
		kind, group = "KubeadmControlPlaneTemplate", controlplanev1.GroupVersion.Group
		parents = append(parents, "/spec/template/spec/kubeadmConfigSpec")
	}
	t := Template{Object: specread.Object{At: patch.Location{Parents: parents, Missing: len(parents)}}}
	if err := checkSize(i.Object); err != nil {
		return t, i.failed(err)
	}
	var gotKind, gotVersion []byte
	r := jsonread.New(i.Object)
	for name := range r.Members {
		switch string(name) {
		case "kind":
			gotKind, _ = r.Bytes()
		case "apiVersion":
			gotVersion, _ = r.Bytes()
		case "spec":
			t.Read(r, nil)
		}
	}
	gotGroup, _, _ := bytes.Cut(gotVersion, []byte("/"))
	t.At.Alone = 0 // a hook leaves no spec empty
	t.Supported = string(gotKind) == kind && string(gotGroup) == group
	if err := r.End(); err != nil {
		return t, i.failed(err)
	}
	return t, nil
}
