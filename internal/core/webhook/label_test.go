package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/webhook"
)

func TestUnknownLabelValue_KeepsWhatIsStored(t *testing.T) {
	t.Parallel()
	const managed = `"files":[{"path":"/etc/capi-proxy-patcher/proxy.env","permissions":"0600","contentFrom":{"secret":{"name":"one-proxy-files","key":"proxy.env"}}}]`
	object := func(files string) string {
		return `{"metadata":{"name":"cp","namespace":"ns"},"spec":{"version":"v1.36.3","kubeadmConfigSpec":{` + files + `}}}`
	}
	for _, reported := range []bool{true, false} {
		for name, test := range map[string]struct {
			stored, requested string // "" is none
			patched           bool
		}{
			"a new object stays as it comes":   {"", object(""), false},
			"entries stay":                     {object(managed), object(managed), false},
			"entries come back":                {object(managed), object(""), true},
			"an object without them stays so":  {object(""), object(""), false},
			"entries that the write brings go": {object(""), object(managed), true},
		} {
			t.Run(fmt.Sprintf("%s, reported %t", name, reported), func(t *testing.T) {
				t.Parallel()
				cluster := labelled()
				cluster.Labels[contract.LabelEnabled] = "True"
				if reported {
					cluster.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
				}
				handler := serve(t, clustersOf(t, cluster), newWorld(t))
				body := review(t, test.requested, func(r *admissionv1.AdmissionRequest) {
					if test.stored != "" {
						r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(test.stored)
					}
				})
				got := response(t, post(t, handler, body))
				if (got.Patch != nil) != test.patched {
					t.Errorf("patch %s, want one: %t", got.Patch, test.patched)
				}
				want := []string{`capi-proxy-patcher: Cluster ns/one: label capi-proxy-patcher.io/enabled: unknown value "True", which changes nothing; use "true" or "false"`}
				if diff := cmp.Diff(want, got.Warnings); diff != "" {
					t.Errorf("warnings (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// warnings are those about an object of a kind that is written.
func warnings(t *testing.T, handler http.Handler, kind, object string) []string {
	t.Helper()
	body := review(t, object, func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = kind })
	answer := response(t, postTo(t, handler, webhook.KindNames, body))
	if answer.Patch != nil {
		t.Errorf("patch %s", answer.Patch)
	}
	return answer.Warnings
}

func TestNames_AreWarnedOf(t *testing.T) {
	t.Parallel()
	var crowd []string
	for i := range 20 {
		crowd = append(crowd, fmt.Sprintf(`"capi-proxy-patcher.io/zebra%02d":""`, i))
	}
	for name, test := range map[string]struct {
		kind, object string
		want         []string // beginnings
	}{
		"a Cluster as it should be": {"Cluster", `{"metadata":{"labels":{"capi-proxy-patcher.io/enabled":"true"},"annotations":{"capi-proxy-patcher.io/secret":"a"}}}`, nil},
		"a label and an annotation": {
			"Cluster", `{"metadata":{"labels":{"capi-proxy-patcher.io/enabled":"yes"},"annotations":{"capi-proxy-patcher.io/rolout":"a\n%s"}}}`,
			[]string{
				`label capi-proxy-patcher.io/enabled: unknown value "yes"`,
				"unknown-name: annotation capi-proxy-patcher.io/rolout: unknown annotation, ignored; did you mean capi-proxy-patcher.io/rollout?",
			},
		},
		"a pool in a topology": {
			"Cluster", `{"spec":{"topology":{"classRef":{"name":"c"},"workers":{"machinePools":[{"name":"p","metadata":{"annotations":{"capi-proxy-patcher.io/rollout":"x"}}}]}}}}`,
			[]string{"unknown-name: annotation capi-proxy-patcher.io/rollout of MachinePool p of spec.topology: "},
		},
		"a pool":                  {"MachineDeployment", `{"metadata":{"annotations":{"capi-proxy-patcher.io/secrets":"x"}}}`, []string{"unknown-name: annotation capi-proxy-patcher.io/secrets: "}},
		"a MachinePool":           {"MachinePool", `{"metadata":{"annotations":{"capi-proxy-patcher.io/enabled":"x"}}}`, []string{"unknown-name: annotation capi-proxy-patcher.io/enabled: "}},
		"a pool of a topology":    {"MachineDeployment", `{"metadata":{"labels":{"topology.cluster.x-k8s.io/owned":""},"annotations":{"capi-proxy-patcher.io/secrets":"x"}}}`, nil},
		"a pool as it should be":  {"MachinePool", `{"metadata":{"annotations":{"capi-proxy-patcher.io/secret":"none","a/b":"c"}}}`, nil},
		"what cannot be read":     {"Cluster", `[]`, nil},
		"a pool that is not one":  {"MachinePool", `{"metadata":7}`, nil},
		"a crowd":                 {"MachinePool", `{"metadata":{"annotations":{` + strings.Join(crowd, ",") + `}}}`, append(slices.Repeat([]string{"unknown-name: "}, 8), "12 more labels or annotations are unknown")},
		"a name of many thousand": {"MachinePool", `{"metadata":{"annotations":{"capi-proxy-patcher.io/` + strings.Repeat("ü", 9000) + `":""}}}`, []string{"unknown-name: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := warnings(t, serve(t, newWorld(t), newWorld(t)), test.kind, test.object)
			if len(got) != len(test.want) {
				t.Fatalf("warnings %q, want %q", got, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], "capi-proxy-patcher: "+want) || len(got[i]) > 512 {
					t.Errorf("warning %q, want %q", got[i], want)
				}
			}
		})
	}
}

func TestNames_OfOtherManagersClustersAreNotWarnedOf(t *testing.T) {
	t.Parallel()
	cluster := labelled()
	cluster.Labels[clusterv1.WatchLabel] = "blue"
	const unknown = `"annotations":{"capi-proxy-patcher.io/secrets":"x"}`
	for name, test := range map[string]struct {
		kind, object string
		warned       bool
	}{
		"its Cluster":          {"Cluster", `{"metadata":{"labels":{"cluster.x-k8s.io/watch-filter":"blue"},` + unknown + `}}`, true},
		"another Cluster":      {"Cluster", `{"metadata":{"labels":{"cluster.x-k8s.io/watch-filter":"green"},` + unknown + `}}`, false},
		"its pool":             {"MachineDeployment", `{"metadata":{` + unknown + `},"spec":{"clusterName":"one"}}`, true},
		"the pool of another":  {"MachineDeployment", `{"metadata":{` + unknown + `},"spec":{"clusterName":"two"}}`, false},
		"what cannot be read":  {"MachineDeployment", `7`, false},
		"a pool of no Cluster": {"MachinePool", `{"metadata":{` + unknown + `}}`, false},
	} {
		handler := serve(t, clustersOf(t, cluster), newWorld(t), settings.Scope{WatchFilter: "blue"})
		if got := warnings(t, handler, test.kind, test.object); (len(got) > 0) != test.warned {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAnnotationsOfTheCluster_AreWarnedOfOnAControlPlane(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		label, annotation string
		want              []string
	}{
		"rollout":                    {"true", "capi-proxy-patcher.io/rollout", []string{"capi-proxy-patcher: unknown-name: annotation capi-proxy-patcher.io/rollout: unknown annotation, ignored; set it as an annotation of the Cluster"}},
		"of somebody else":           {"true", "mine/rollout", nil},
		"a Cluster that is not ours": {"", "capi-proxy-patcher.io/rollout", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := labelled()
			cluster.Labels[contract.LabelEnabled] = test.label
			if test.label == "" {
				delete(cluster.Labels, contract.LabelEnabled)
			}
			handler := serve(t, clustersOf(t, cluster), newWorld(t))
			got := response(t, post(t, handler, review(t, `{"metadata":{"name":"cp","namespace":"ns","annotations":{"`+
				test.annotation+`":"Immediate"}},"spec":{"version":"v1.36.3","kubeadmConfigSpec":{}}}`)))
			if diff := cmp.Diff(test.want, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
