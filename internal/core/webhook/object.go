package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// write is a write to a bootstrap object that is being admitted.
type write struct {
	kind            string
	namespace, name string
	// created reports whether the write creates the object.
	created bool
	// requested is the object of the request, stored the object before it. On creation they are the same: entries from a
	// backup or from an earlier call of the webhook count as stored.
	requested, stored object
}

func (w write) String() string { return w.kind + " " + w.namespace + "/" + w.name }

// object is a bootstrap object of a request.
type object struct {
	kinds.BootstrapObject

	// text is the object in JSON.
	text []byte
}

// decode reads a request. It returns nil for an object whose fields do not have the types of the API: the API server
// refuses it. Its error is for a request without an object.
func decode(kind string, request *admissionv1.AdmissionRequest) (*write, error) {
	if !isObject(request.Object.Raw) || request.Operation != admissionv1.Create && !isObject(request.OldObject.Raw) {
		return nil, errors.New("decoding request: its object, or its old object, is no JSON object")
	}
	w := &write{
		kind: kind, namespace: request.Namespace, name: request.Name,
		created: request.Operation == admissionv1.Create,
	}
	read := func(text []byte) object {
		o := object{kinds.NewBootstrapObject(kind), text}
		if kinds.Decode(text, o.BootstrapObject) != nil {
			return object{}
		}
		return o
	}
	w.requested = read(request.Object.Raw)
	w.stored = w.requested
	if !w.created {
		w.stored = read(request.OldObject.Raw)
	}
	if w.requested.BootstrapObject == nil || w.stored.BootstrapObject == nil {
		return nil, nil //nolint:nilnil // it is admitted unchanged
	}
	return w, nil
}

func isObject(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
}

// isOurs reports whether the write is the controller's own. Any client may use this field manager; it merely opts out
// of the webhook.
func isOurs(request *admissionv1.AdmissionRequest) bool {
	var options struct {
		FieldManager string `json:"fieldManager"` // in all kinds of options
	}
	return len(request.Options.Raw) > 0 && kinds.Decode(request.Options.Raw, &options) == nil &&
		options.FieldManager == contract.Name
}

// ofControlPlane reports whether a KubeadmConfig is of a control-plane Machine. KubeadmControlPlane compares it with
// its own bootstrap configuration and would replace the Machine.
func (w write) ofControlPlane() bool {
	_, labelled := w.requested.GetLabels()[clusterv1.MachineControlPlaneLabel]
	return labelled || w.hasOwner(plan.KindControlPlane)
}

// hasOwner reports whether the object has an owner of a kind.
func (w write) hasOwner(kind string) bool {
	return slices.ContainsFunc(w.requested.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return r.Kind == kind })
}

// clusterName is the Cluster that the label or an owner reference of the object names, or "".
func (w write) clusterName() string {
	if name := w.requested.GetLabels()[clusterv1.ClusterNameLabel]; name != "" {
		return name
	}
	for _, reference := range w.requested.GetOwnerReferences() {
		if reference.Kind == "Cluster" && strings.HasPrefix(reference.APIVersion, clusterv1.GroupVersion.Group+"/") {
			return reference.Name
		}
	}
	return ""
}

// isRunning reports whether bootstrap data has been made of a KubeadmConfig, or a control plane has Machines.
func (w write) isRunning() bool {
	if w.created {
		return false
	}
	switch o := w.stored.BootstrapObject.(type) {
	case *bootstrapv1.KubeadmConfig:
		return o.Status.DataSecretName != ""
	case *controlplanev1.KubeadmControlPlane:
		return ptr.Deref(o.Status.Replicas, 0) > 0
	default:
		return false
	}
}

// isBusy reports whether Cluster API works on a control plane.
func (w write) isBusy() bool {
	o, ok := w.stored.BootstrapObject.(*controlplanev1.KubeadmControlPlane)
	if !ok {
		return false
	}
	paused := meta.FindStatusCondition(o.Status.Conditions, clusterv1.PausedCondition)
	return paused != nil && !plan.AtRest(paused.Status)
}

// rolls reports whether the write replaces the Machines of a control plane for the user's own reason. Most updates
// change no field that this depends on.
func (w write) rolls(now time.Time) bool {
	if w.kind != plan.KindControlPlane || w.created {
		return false
	}
	type parts struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	var stored, requested parts
	if kinds.Decode(w.stored.text, &stored) != nil || kinds.Decode(w.requested.text, &requested) != nil ||
		!slices.ContainsFunc(plan.RollsBy(), func(part string) bool {
			return !bytes.Equal(stored.Spec[part], requested.Spec[part])
		}) {
		return false
	}
	var before, after map[string]any
	return kinds.Decode(w.stored.text, &before) == nil && kinds.Decode(w.requested.text, &after) == nil &&
		plan.Rolls(before, after, now)
}
