package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// write is a write to a bootstrap object that is being admitted.
type write struct {
	kind            string
	namespace, name string
	// created reports whether the write creates the object.
	created bool
	// asked is the object that the request asks for, stored the one before it. On creation they are the same: what an
	// object contains from a backup or from an earlier call of the webhook counts as stored.
	asked, stored *unstructured.Unstructured
	spec, before  patch.Spec
	at            patch.Location
	// sent is the bootstrap spec of the request; spec is sent after the edits of adopted, which replace the user's
	// files by managed files.
	sent    patch.Spec
	adopted []patch.Edit
}

func (w write) String() string { return w.kind + " " + w.namespace + "/" + w.name }

// decode reads a request. Objects stay in JSON, so that fields that this program does not know are kept. They share
// what is the same in both, and are never changed.
func decode(kind string, request *admissionv1.AdmissionRequest) (write, error) {
	w := write{
		kind: kind, namespace: request.Namespace, name: request.Name,
		created: request.Operation == admissionv1.Create,
		asked:   &unstructured.Unstructured{}, stored: &unstructured.Unstructured{},
	}
	var err error
	known := map[string]jsonread.Decoded{} // of the spec; most updates change few members
	if w.asked.Object, err = decodeObject(request.Object.Raw, known); err != nil {
		return write{}, fmt.Errorf("decoding object of request: %w", err)
	}
	if w.created {
		w.stored = w.asked
	} else if w.stored.Object, err = decodeObject(request.OldObject.Raw, known); err != nil {
		return write{}, fmt.Errorf("decoding old object of request: %w", err)
	}
	var spec map[string]any
	spec, w.at = plan.Locate(kind, w.asked.Object)
	w.spec = patch.SpecOfMap(spec)
	w.sent = w.spec
	spec, _ = plan.Locate(kind, w.stored.Object)
	w.before = patch.SpecOfMap(spec)
	return w, nil
}

// decodeObject decodes an object without what no decision reads, which is most of it: managedFields, and the status but
// for a few fields. spec are the members of the spec that was decoded before, and becomes those of this one.
func decodeObject(text []byte, spec map[string]jsonread.Decoded) (map[string]any, error) {
	r := jsonread.New(text)
	if r.Kind() != '{' {
		return nil, errors.New("it is no JSON object")
	}
	object := map[string]any{}
	for name := range r.Members {
		switch key := string(name); {
		case key == "metadata" && r.Kind() == '{':
			object[key] = members(r, func(name string) bool { return name != "managedFields" })
		case key == "status" && r.Kind() == '{':
			object[key] = members(r, func(name string) bool {
				return name == "dataSecretName" || name == "conditions" || name == "replicas"
			})
		case key == "spec" && r.Kind() == '{':
			values := map[string]any{}
			for name := range r.Members {
				member := string(name)
				spec[member] = r.ValueLike(spec[member])
				values[member] = spec[member].Value
			}
			object[key] = values
		default:
			object[key] = r.Value()
		}
	}
	return object, r.End()
}

// members decodes the members of an object whose names are wanted.
func members(r *jsonread.Reader, wanted func(name string) bool) map[string]any {
	object := map[string]any{}
	for name := range r.Members {
		if key := string(name); wanted(key) {
			object[key] = r.Value()
		}
	}
	return object
}

// isOurs reports whether the write is the controller's own. Any client may use this field manager; it merely opts out
// of the webhook.
func isOurs(request *admissionv1.AdmissionRequest) bool {
	var options metav1.PatchOptions // all kinds of options have the same fieldManager
	return json.Unmarshal(request.Options.Raw, &options) == nil && options.FieldManager == contract.Name
}

// ofControlPlane reports whether a KubeadmConfig is of a control-plane Machine. KubeadmControlPlane compares it with
// its own bootstrap configuration and would replace the Machine.
func (w write) ofControlPlane() bool {
	if _, labelled := w.asked.GetLabels()[clusterv1.MachineControlPlaneLabel]; labelled {
		return true
	}
	for _, owner := range w.asked.GetOwnerReferences() {
		if owner.Kind == plan.KindControlPlane {
			return true
		}
	}
	return false
}

// hasData reports whether bootstrap data has been made of a KubeadmConfig.
func (w write) hasData() bool {
	name, _, _ := unstructured.NestedString(w.stored.Object, "status", "dataSecretName")
	return !w.created && name != ""
}

// paused is the status of condition Paused of the stored object, "" if it has none.
func (w write) paused() metav1.ConditionStatus {
	field, _, _ := unstructured.NestedFieldNoCopy(w.stored.Object, "status", "conditions")
	conditions, _ := field.([]any)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == clusterv1.PausedCondition {
			status, _ := condition["status"].(string)
			return metav1.ConditionStatus(status)
		}
	}
	return ""
}

// replicas is the number of Machines that the status of a control plane counts.
func (w write) replicas() int64 {
	if w.created {
		return 0
	}
	count, _, _ := unstructured.NestedFloat64(w.stored.Object, "status", "replicas")
	return int64(count)
}
