package webhook

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// TestDecode_LeavesWhatTheAPIServerRefuses reads objects that have not the types of the API.
func TestDecode_LeavesWhatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"metadata": []}`, `{"metadata": {"labels": {"a": 1}}}`, `{"spec": []}`,
		`{"spec": {"kubeadmConfigSpec": {"files": {}}}}`, `{"spec": {"kubeadmConfigSpec": {"preKubeadmCommands": [1]}}}`,
		`{"status": {"replicas": "1"}}`, `{"spec": {"kubeadmConfigSpec": {"files": [1]}}}`,
	} {
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
			request := &admissionv1.AdmissionRequest{
				Operation: operation, Object: runtime.RawExtension{Raw: []byte(text)},
				OldObject: runtime.RawExtension{Raw: []byte(`{}`)},
			}
			if w, err := decode(plan.KindControlPlane, request); w != nil || err != nil {
				t.Errorf("%s: %s is read", operation, text)
			}
			request.Object, request.OldObject = request.OldObject, request.Object
			if w, err := decode(plan.KindControlPlane, request); operation == admissionv1.Update && (w != nil || err != nil) {
				t.Errorf("%s of %s is read", operation, text)
			}
		}
	}
}

// TestIsOurs_ReadsTheFieldManager is for any kind of options.
func TestIsOurs_ReadsTheFieldManager(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"fieldManager": "capi-proxy-patcher", "kind": "PatchOptions"}`: true,
		`{"fieldManager": "capi-proxy-patcher "}`:                        false, `{"fieldmanager": "capi-proxy-patcher"}`: false, `{}`: false, ``: false,
		`{"fieldManager": ["capi-proxy-patcher"]}`: false,
	} {
		request := &admissionv1.AdmissionRequest{Options: runtime.RawExtension{Raw: []byte(text)}}
		if got := isOurs(request); got != want {
			t.Errorf("%s: %t", text, got)
		}
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
		t.Error("a spec with a number that is none replaces Machines")
	}
}
