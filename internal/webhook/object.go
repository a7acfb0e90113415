package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/specread"
)

// write is a write to a bootstrap object that is being admitted.
type write struct {
	kind            string
	namespace, name string
	// created reports whether the write creates the object.
	created bool
	// asked is the object that the request asks for, stored the one before it. On creation they are the same: what an
	// object contains from a backup or from an earlier call of the webhook counts as stored.
	asked, stored *object
}

func (w write) String() string { return w.kind + " " + w.namespace + "/" + w.name }

// object is what decisions read of a bootstrap object.
type object struct {
	specread.Object
	metadata
	status

	// spec is in JSON.
	spec []byte
}

// metadata is what decisions read of the metadata of an object.
type metadata struct {
	labels, annotations map[string]string // without the last applied configuration
	owners              []metav1.OwnerReference
	deleted             bool
}

// status is what decisions read of the status of an object.
type status struct {
	dataSecret string
	// paused is the status of condition Paused, "" if there is none.
	paused metav1.ConditionStatus
	// replicas is the number of Machines that a control plane counts.
	replicas int64
}

// decode reads a request.
func decode(kind string, request *admissionv1.AdmissionRequest) (write, error) {
	w := write{
		kind: kind, namespace: request.Namespace, name: request.Name,
		created: request.Operation == admissionv1.Create,
	}
	var err error
	if w.asked, err = decodeObject(kind, request.Object.Raw, nil); err != nil {
		return write{}, fmt.Errorf("decoding object of request: %w", err)
	}
	if w.created {
		w.stored = w.asked
	} else if w.stored, err = decodeObject(kind, request.OldObject.Raw, &w.asked.Object); err != nil {
		return write{}, fmt.Errorf("decoding old object of request: %w", err)
	}
	return w, nil
}

// decodeObject reads an object of a kind. It may share the bootstrap spec of another one.
func decodeObject(kind string, text []byte, like *specread.Object) (*object, error) {
	r := jsonread.New(text)
	if r.Kind() != '{' {
		return nil, errors.New("it is no JSON object")
	}
	parents := plan.Parents(kind)
	o := &object{Object: specread.Object{
		At: patch.Location{Parents: parents, Missing: len(parents)}, Readable: true, Whole: true,
	}}
	var version []byte
	for name := range r.Members {
		switch string(name) {
		case "apiVersion":
			version, _ = r.Bytes()
		case "metadata":
			o.metadata = decodeMetadata(r)
		case "status":
			o.status = decodeStatus(r)
		case "spec":
			o.spec = r.Raw()
			o.Read(jsonread.New(o.spec), like)
		}
	}
	if bytes.HasSuffix(version, []byte("/v1beta1")) {
		o.At.Alone = 0 // parents may be empty, and some are required
	}
	return o, r.End()
}

func decodeMetadata(r *jsonread.Reader) metadata {
	var m metadata
	for name := range r.Members {
		switch string(name) {
		case "labels":
			m.labels = decodeTexts(r)
		case "annotations":
			m.annotations = decodeTexts(r)
		case "ownerReferences":
			m.owners = decodeOwners(r)
		case "deletionTimestamp":
			deleted, _ := r.Bytes()
			m.deleted = len(deleted) > 0
		}
	}
	return m
}

// decodeTexts reads labels or annotations. They are nil if one is no string, which the API server refuses.
func decodeTexts(r *jsonread.Reader) map[string]string {
	if r.Kind() != '{' {
		r.Skip()
		return nil
	}
	read, valid := map[string]string{}, true
	for name := range r.Members {
		if string(name) == corev1.LastAppliedConfigAnnotation {
			continue
		}
		key, null := string(name), r.Kind() == 'n'
		text, is := r.Text()
		read[key], valid = text, valid && (is || null)
	}
	if !valid {
		return nil
	}
	return read
}

// decodeOwners reads owner references. There are none if one is no object, which the API server refuses.
func decodeOwners(r *jsonread.Reader) []metav1.OwnerReference {
	var owners []metav1.OwnerReference
	valid := true
	for range r.Elements {
		valid = valid && r.Kind() == '{'
		owners = append(owners, decodeOwner(r))
	}
	if !valid {
		return nil
	}
	return owners
}

func decodeOwner(r *jsonread.Reader) metav1.OwnerReference {
	var owner metav1.OwnerReference
	for name := range r.Members {
		switch string(name) {
		case "apiVersion":
			owner.APIVersion, _ = r.Text()
		case "kind":
			owner.Kind, _ = r.Text()
		case "name":
			owner.Name, _ = r.Text()
		}
	}
	return owner
}

func decodeStatus(r *jsonread.Reader) status {
	var s status
	for name := range r.Members {
		switch string(name) {
		case "dataSecretName":
			s.dataSecret, _ = r.Text()
		case "replicas":
			number, _ := strconv.ParseFloat(string(r.Raw()), 64) // 0 for what is no number
			s.replicas = int64(number)
		case "conditions":
			s.paused = decodePaused(r)
		}
	}
	return s
}

// decodePaused reads the status of the first condition Paused of a list.
func decodePaused(r *jsonread.Reader) metav1.ConditionStatus {
	var paused metav1.ConditionStatus
	found := false
	for range r.Elements {
		var kind, status []byte
		for name := range r.Members {
			switch string(name) {
			case "type":
				kind, _ = r.Bytes()
			case "status":
				status, _ = r.Bytes()
			}
		}
		if !found && string(kind) == clusterv1.PausedCondition {
			paused, found = metav1.ConditionStatus(status), true
		}
	}
	return paused
}

// isOurs reports whether the write is the controller's own. Any client may use this field manager; it merely opts out
// of the webhook.
func isOurs(request *admissionv1.AdmissionRequest) bool {
	var manager []byte
	options := jsonread.New(request.Options.Raw)
	for name := range options.Members {
		if string(name) == "fieldManager" { // in all kinds of options
			manager, _ = options.Bytes()
		}
	}
	return options.End() == nil && string(manager) == contract.Name
}

// ofControlPlane reports whether a KubeadmConfig is of a control-plane Machine. KubeadmControlPlane compares it with
// its own bootstrap configuration and would replace the Machine.
func (w write) ofControlPlane() bool {
	_, labelled := w.asked.labels[clusterv1.MachineControlPlaneLabel]
	return labelled || w.hasOwner(plan.KindControlPlane)
}

// hasOwner reports whether the object has an owner of a kind.
func (w write) hasOwner(kind string) bool {
	return slices.ContainsFunc(w.asked.owners, func(r metav1.OwnerReference) bool { return r.Kind == kind })
}

// clusterName is the Cluster that the label or an owner reference of the object names, or "".
func (w write) clusterName() string {
	if name := w.asked.labels[clusterv1.ClusterNameLabel]; name != "" {
		return name
	}
	for _, reference := range w.asked.owners {
		if reference.Kind == "Cluster" && strings.HasPrefix(reference.APIVersion, clusterv1.GroupVersion.Group+"/") {
			return reference.Name
		}
	}
	return ""
}

// isRunning reports whether bootstrap data has been made of a KubeadmConfig, or a control plane has Machines.
func (w write) isRunning() bool {
	return !w.created && (w.stored.dataSecret != "" || w.stored.replicas > 0)
}

// rolls reports whether the write replaces the Machines of a control plane for the user's own reason. Most updates
// change nothing of what that depends on, and then nothing is decoded.
func (w write) rolls(now time.Time) bool {
	if w.kind != plan.KindControlPlane || w.created {
		return false
	}
	stored, asked := partsOf(w.stored.spec), partsOf(w.asked.spec)
	if slices.EqualFunc(stored, asked, bytes.Equal) {
		return false
	}
	before, known := decodeParts(stored)
	after, read := decodeParts(asked)
	return known && read && plan.Rolls(before, after, now)
}

// partsOf returns the members of a spec that plan.Rolls reads, in JSON.
func partsOf(spec []byte) [][]byte {
	names := plan.RollsBy()
	parts := make([][]byte, len(names))
	r := jsonread.New(spec)
	for name := range r.Members {
		if i := slices.Index(names, string(name)); i >= 0 {
			parts[i] = r.Raw()
		}
	}
	return parts
}

// decodeParts returns an object with such members of its spec, and whether it could be read.
func decodeParts(parts [][]byte) (map[string]any, bool) {
	spec := map[string]any{}
	for i, name := range plan.RollsBy() {
		if parts[i] == nil {
			continue
		}
		r := jsonread.New(parts[i])
		if spec[name] = r.Value(); r.End() != nil {
			return nil, false
		}
	}
	return map[string]any{"spec": spec}, true
}
