package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

const (
	dropInPath = "/etc/systemd/system/containerd.service.d/http-proxy.conf"
	// dropIn is a drop-in of a user who does not know of the product, with a field that the product does not know.
	dropIn = `{"content":"[Service]\nEnvironment=\"HTTP_PROXY=http://u:p%25` + "`" +
		`'$x@old:1/{{ x }}\"\n","future":[1],"path":"/usr/lib/systemd/system/containerd.service.d/http-proxy.conf"}`
)

// adopting returns a Cluster that adopts and, as the API server has it, the Secret with dropIn.
func adopting(t *testing.T, annotations map[string]string) *store {
	t.Helper()
	cluster := labelled()
	cluster.Annotations = map[string]string{contract.AnnotationAdopt: contract.AdoptValue}
	maps.Copy(cluster.Annotations, annotations)
	cluster.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
	originals := fmt.Sprintf(`{"KubeadmControlPlane/cp":{%q:%s}}`, dropInPath, dropIn)
	stored := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cp", UID: "u"}}
	return &store{controlPlane: stored, clusters: []clusterv1.Cluster{cluster}, secrets: []corev1.Secret{{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "one-proxy-files",
			Labels: map[string]string{contract.LabelGenerated: "one"},
		},
		Data: map[string][]byte{contract.KeyAdoptedFiles: []byte(originals)},
	}}}
}

// controlPlane is a KubeadmControlPlane with dropIn, with the UID of the stored one.
func controlPlane(version, commands string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":"cp","namespace":"ns","uid":"u"},"status":{"replicas":1},"spec":{"version":%q,"kubeadmConfigSpec":{`+
			`"files":[{"path":"/etc/motd","content":"x"},%s],"preKubeadmCommands":[%s]}}}`, version, dropIn, commands)
}

// updated sends an update and returns the object after the answer, and the warnings.
func updated(t *testing.T, cached *store, before, after string) (string, []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(before), cached.controlPlane); err != nil {
		t.Fatal(err)
	}
	answer := response(t, post(t, serve(t, cached, &store{}), review(t, after, func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(before)
	})))
	if answer.Patch == nil {
		return after, answer.Warnings
	}
	decoded, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := decoded.Apply([]byte(after))
	if err != nil {
		t.Fatal(err)
	}
	return string(patched), answer.Warnings
}

func TestAdmission_LeavesTheWriteAloneIfAdoptionConflicts(t *testing.T) {
	t.Parallel()
	cached := adopting(t, nil)
	before := controlPlane("v1.36.3", `"echo own"`)
	if got, warnings := updated(t, cached, before, controlPlane("v1.37.0", `"echo own"`)); strings.Contains(got,
		"old:1") || len(warnings) > 0 {
		t.Fatalf("nothing is adopted: %s, warnings %q", got, warnings)
	}
	for name, commands := range map[string]string{
		"a command with the mark of managed ones": `"echo own # capi-proxy-patcher"`,
		"as many commands as there may be":        strings.Repeat(`"echo own",`, 999) + `"echo"`,
	} {
		after := controlPlane("v1.37.0", commands)
		got, warnings := updated(t, cached, before, after)
		if !jsonpatch.Equal([]byte(after), []byte(got)) {
			t.Errorf("%s: the write becomes %.1500s", name, got)
		}
		if len(warnings) != 1 {
			t.Errorf("%s: warnings %q", name, warnings)
		}
	}
}

// adopted is the KubeadmControlPlane of controlPlane after its drop-in was adopted.
func adopted(t *testing.T) string {
	t.Helper()
	patched, warnings := updated(t, adopting(t, nil), controlPlane("v1.36.3", `"echo own"`),
		controlPlane("v1.37.0", `"echo own"`))
	if strings.Contains(patched, "old:1") || len(warnings) > 0 {
		t.Fatalf("nothing is adopted: %s, warnings %q", patched, warnings)
	}
	return patched
}

func TestAdmission_RestoresTheOriginalOfARemovedFile(t *testing.T) {
	t.Parallel()
	original := strings.ReplaceAll(dropIn, " ", "")
	for name, test := range map[string]struct {
		cached *store
		change func(string) string
	}{
		"targets without containerd": {adopting(t, map[string]string{contract.AnnotationTargets: "kubelet"}), nil},
		"targets without a unit":     {adopting(t, map[string]string{contract.AnnotationTargets: "kubeadm"}), nil},
		"no label":                   {adopting(t, nil), nil},
		"no label, and a write without the managed files": {adopting(t, nil), func(string) string {
			return strings.Replace(controlPlane("v1.38.0", `"echo own"`), ","+dropIn, "", 1)
		}},
		"a manifest with the original": {adopting(t, map[string]string{contract.AnnotationTargets: "kubelet"}), func(string) string {
			return controlPlane("v1.38.0", `"echo own"`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(name, "no label") {
				test.cached.clusters[0].Labels = nil
			}
			before := adopted(t)
			after := strings.Replace(before, "v1.37.0", "v1.38.0", 1)
			if test.change != nil {
				after = test.change(before)
			}
			got, warnings := updated(t, test.cached, before, after)
			if strings.Count(strings.ReplaceAll(got, " ", ""), original) != 1 || strings.Contains(got, dropInPath) ||
				len(warnings) > 0 {
				t.Errorf("the original is not back: %s, warnings %q", got, warnings)
			}
		})
	}
}

func TestAdmission_TakesTheManifestOfAnAdoptedFileForNoRollout(t *testing.T) {
	t.Parallel()
	before := adopted(t)
	cached := adopting(t, map[string]string{contract.AnnotationTargets: "kubelet"})
	got, warnings := updated(t, cached, before, controlPlane("v1.37.0", `"echo own"`))
	var was, is map[string]any
	if err := errors.Join(json.Unmarshal([]byte(before), &was), json.Unmarshal([]byte(got), &is)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was["spec"], is["spec"]); diff != "" || len(warnings) > 0 {
		t.Errorf("Machines are replaced, warnings %q (-before +after):\n%s", warnings, diff)
	}
}
