package webhook

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// wantedMetadata is what apimachinery reads of an object.
func wantedMetadata(o *unstructured.Unstructured) metadata {
	want := metadata{
		labels: o.GetLabels(), annotations: o.GetAnnotations(),
		deleted: o.GetDeletionTimestamp() != nil,
	}
	delete(want.labels, corev1.LastAppliedConfigAnnotation)
	delete(want.annotations, corev1.LastAppliedConfigAnnotation)
	for _, owner := range o.GetOwnerReferences() {
		want.owners = append(want.owners,
			metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name})
	}
	return want
}

func wantedStatus(object map[string]any) status {
	var want status
	want.dataSecret, _, _ = unstructured.NestedString(object, "status", "dataSecretName")
	count, _, _ := unstructured.NestedFloat64(object, "status", "replicas")
	want.replicas = int64(count)
	field, _, _ := unstructured.NestedFieldNoCopy(object, "status", "conditions")
	conditions, _ := field.([]any)
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["type"] == clusterv1.PausedCondition {
			status, _ := condition["status"].(string)
			want.paused = metav1.ConditionStatus(status)
			break
		}
	}
	return want
}

// reviewOf is a review of an update, as the API server encodes it.
func reviewOf(t *testing.T, stored, asked []byte) []byte {
	t.Helper()
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u\"%", Kind: metav1.GroupVersionKind{Group: "g", Version: "v", Kind: "K"}, Name: "`$'\\", Namespace: "é<",
			Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: asked},
			OldObject: runtime.RawExtension{Raw: stored}, Options: runtime.RawExtension{Raw: []byte(`{"fieldManager":"x"}`)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzDecode compares what is read of a review with what encoding/json and apimachinery read of it.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `[]`, `{"metadata":null,"spec":[],"status":{"replicas":1e99,"conditions":{}}}`,
		`{"metadata":{"labels":{"a":"b","cluster.x-k8s.io/cluster-name":null},"annotations":{},"uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z",
			"ownerReferences":[{"kind":"Machine","apiVersion":"cluster.x-k8s.io/v1beta2","name":"m"},1,{"kind":7}]}}`,
		`{"metadata":{"labels":{"a":1},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"x"},"deletionTimestamp":""},
			"metadata":{"uid":5,"annotations":{"cluster.x-k8s.io/paused":""}}}`,
		`{"status":{"dataSecretName":"x","replicas":3,"conditions":[{"type":"Ready"},{"type":"Paused","status":"False"},{"type":"Paused","status":"True"}]}}`,
		`{"spec":{"version":"v1","replicas":3,"kubeadmConfigSpec":{"files":[{"path":"/a"}],"preKubeadmCommands":["x"]}},"apiVersion":"x/v1beta1"}`,
		`{"spec":{"version":"v2","replicas":4,"kubeadmConfigSpec":{"files":[{"path":"/a"}],"preKubeadmCommands":["x"]}},"apiVersion":"x/v1beta2"}`,
		`{"spec":{"rollout":{"after":"2020-01-01T00:00:00Z"},"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{}}}}}`,
	} {
		f.Add([]byte(text), []byte(`{"spec":{"version":"v1","kubeadmConfigSpec":{"files":[{"path":"/a"}],"preKubeadmCommands":["x"]}}}`))
		f.Add([]byte(`{}`), []byte(text))
	}
	f.Fuzz(func(t *testing.T, stored, asked []byte) {
		if !json.Valid(stored) || !json.Valid(asked) || bytes.Contains(asked, []byte("e+")) {
			return
		}
		text := reviewOf(t, stored, asked)
		got, err := decodeReview(text)
		var want admissionv1.AdmissionReview
		if err != nil || json.Unmarshal(text, &want) != nil {
			t.Fatalf("%s: %v", text, err)
		}
		want.Request.Kind.Group, want.Request.Kind.Version = "", ""
		if diff := cmp.Diff(want.Request, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", text, diff)
		}
		for _, kind := range []string{plan.KindControlPlane, plan.KindConfig} {
			compareWrite(t, kind, got)
		}
	})
}

// compareWrite compares what is read of both objects of a request.
func compareWrite(t *testing.T, kind string, request *admissionv1.AdmissionRequest) {
	t.Helper()
	var before, after map[string]any
	readable := json.Unmarshal(request.OldObject.Raw, &before) == nil && before != nil &&
		json.Unmarshal(request.Object.Raw, &after) == nil && after != nil
	w, err := decode(kind, request)
	if err != nil {
		if readable {
			t.Fatalf("%s: %v", request.Object.Raw, err)
		}
		return
	}
	if !readable { // a number is out of range
		return
	}
	for object, got := range map[*map[string]any]*object{&before: w.stored, &after: w.asked} {
		metadata, status := wantedMetadata(&unstructured.Unstructured{Object: *object}), wantedStatus(*object)
		metadata.deleted = got.deleted // garbage is no time there, and not decided here
		if diff := cmp.Diff(metadata, got.metadata, cmp.AllowUnexported(metadata)); diff != "" {
			t.Fatalf("%v: metadata (-want +got):\n%s", *object, diff)
		}
		if status != got.status {
			t.Fatalf("%v: status is %v, want %v", *object, got.status, status)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	want := kind == plan.KindControlPlane && plan.Rolls(before, after, now)
	if got := w.rolls(now); got != want {
		t.Fatalf("%s to %s: rolls is %t, want %t", request.OldObject.Raw, request.Object.Raw, got, want)
	}
}

func TestDecode_DecodesNothingButWhatDecisionsRead(t *testing.T) { // not parallel: it counts allocations
	many := `[` + strings.TrimSuffix(strings.Repeat(`{"a":"\n","b":[1,2]},`, 1000), ",") + `]`
	text := `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"\n"},"managedFields":` + many +
		`},"spec":{"version":"v1","kubeadmConfigSpec":{"clusterConfiguration":` + many + `}},"status":{"a":` + many + `}}`
	request := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: []byte(text)},
		OldObject: runtime.RawExtension{Raw: []byte(strings.Replace(text, `"spec":{`, `"spec":{"replicas":5,`, 1))},
	}
	allocations := testing.AllocsPerRun(10, func() {
		w, err := decode(plan.KindControlPlane, request)
		if err != nil || w.rolls(time.Time{}) {
			t.Fatal(err)
		}
	})
	if allocations > 50 {
		t.Errorf("%v allocations", allocations)
	}
}

func TestRolls_LeavesASpecThatItCannotReadAlone(t *testing.T) {
	t.Parallel()
	text := `{"spec":{"version":"v%s","rollout":{"n":1e999}}}`
	w, err := decode(plan.KindControlPlane, &admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: []byte(strings.ReplaceAll(text, "%s", "1"))},
		OldObject: runtime.RawExtension{Raw: []byte(strings.ReplaceAll(text, "%s", "2"))},
	})
	if err != nil || w.rolls(time.Time{}) {
		t.Errorf("a spec with a number that is none replaces Machines (%v)", err)
	}
}

func TestDecodeReview_RefusesWhatIsNoReview(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `{}`, `[]`, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}`,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{}}`,
		`{"kind":"x","apiVersion":"admission.k8s.io/v1","request":{}}`,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{}}x`,
	} {
		if _, err := decodeReview([]byte(text)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if admissionv1.SchemeGroupVersion.String() != apiVersion {
		t.Errorf("%s is not %s", apiVersion, admissionv1.SchemeGroupVersion)
	}
}
