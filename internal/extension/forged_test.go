package extension

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension/request"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

// spy has every Secret that it is asked for, and remembers which those are.
type spy struct{ asked *[]string }

func (s spy) ReadSecret(_ context.Context, name types.NamespacedName) (*resolve.Secret, error) {
	*s.asked = append(*s.asked, name.String())
	return &resolve.Secret{Name: name, Data: map[string][]byte{"httpProxy": []byte("http://s3cret:1")}}, nil
}

// forgeries are requests for a Cluster that is stored as something else, or not at all. Each names Secret s3cret, or
// asks for values that the stored Cluster does not ask for.
func forgeries() map[string]struct {
	request hookrequests.Options
	stored  *clusterv1.Cluster
} {
	inline := hookrequests.Options{Pools: 1, Variable: `{"delivery":"Inline"}`}
	named := hookrequests.Options{Pools: 1, Variable: `{"delivery":"Inline","secretName":"s3cret"}`}
	unlabelled := named
	unlabelled.Unlabelled = true
	return map[string]struct {
		request hookrequests.Options
		stored  *clusterv1.Cluster
	}{
		"a Cluster that does not exist":          {named, nil},
		"a Cluster without the label":            {named, storedCluster(unlabelled, "x.example.com")},
		"a Cluster with delivery Reference":      {hookrequests.Options{Pools: 1, Variable: `{"delivery":"Inline"}`}, storedCluster(hookrequests.Options{Pools: 1}, "x.example.com")},
		"a Secret in the variable":               {named, storedCluster(inline, "x.example.com")},
		"a Secret in the annotation":             {hookrequests.Options{Variable: inline.Variable, Annotations: map[string]string{contract.AnnotationSecret: "s3cret"}}, storedCluster(inline, "x.example.com")},
		"a Secret in the variable of a pool":     {hookrequests.Options{Pools: 1, Variable: inline.Variable, Overrides: map[int]string{0: `{"secretName":"s3cret"}`}}, storedCluster(inline, "x.example.com")},
		"a Secret in the annotation of a pool":   {hookrequests.Options{Pools: 1, Variable: inline.Variable, PoolAnnotations: map[int]map[string]string{0: {contract.AnnotationSecret: "s3cret"}}}, storedCluster(inline, "x.example.com")},
		"entries of NO_PROXY that are not there": {hookrequests.Options{Variable: `{"delivery":"Inline","noProxy":["x"]}`}, storedCluster(inline, "x.example.com")},
	}
}

func TestForgedRequests_ReadNoSecretThatTheStoredClusterDoesNotName(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range forgeries() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			h := &Handlers{State: stateOf(spy{&asked}, test.stored), MaxWait: time.Hour, Now: func() time.Time { return now }}
			q := generated(t, test.request)
			response := respond(t, h, q)
			again := respond(t, h, q)
			if response.Status != runtimehooksv1.ResponseStatusFailure || response.Message != again.Message ||
				len(response.Items) > 0 {
				t.Errorf("GeneratePatches: %s %q, then %q, %d items", response.Status, response.Message, again.Message,
					len(response.Items))
			}
			validated := validate(t, h, q)
			if validated.Status != runtimehooksv1.ResponseStatusSuccess {
				t.Errorf("ValidateTopology: %q", validated.Message)
			}
			cluster := storedCluster(test.request, "")
			cluster.CreationTimestamp.Time = now
			created := beforeCreate(t, h, &runtimehooksv1.BeforeClusterCreateRequest{Cluster: *cluster})
			for _, message := range []string{response.Message, validated.Message, created.Message} {
				if strings.Contains(message, "s3cret") {
					t.Errorf("the answer tells of the Secret: %q", message)
				}
			}
			if slices.ContainsFunc(asked, func(name string) bool { return strings.Contains(name, "s3cret") }) {
				t.Errorf("Secrets %v are read", asked)
			}
		})
	}
}

func TestValidateTopology_ChecksTheSecretsThatTheStoredClusterNames(t *testing.T) {
	t.Parallel()
	var asked []string
	stored := hookrequests.Options{
		Pools: 2, Variable: `{"secretName":"one"}`,
		Overrides: map[int]string{1: `{"secretName":"two"}`},
	}
	h := &Handlers{State: stateOf(spy{&asked}, storedCluster(stored, ""))}
	validated := validate(t, h, generated(t, hookrequests.Options{}))
	if diff := cmp.Diff([]string{"team-a/one", "team-a/two"}, asked); diff != "" ||
		validated.Status != runtimehooksv1.ResponseStatusSuccess {
		t.Errorf("%q (-want +got):\n%s", validated.Message, diff)
	}
}

func TestBeforeClusterCreate_AsksAgainAboutAnUnknownCluster(t *testing.T) {
	t.Parallel()
	var asked []string
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	h := &Handlers{State: stateOf(spy{&asked}, nil), MaxWait: time.Hour, Now: func() time.Time { return now }}
	for created, want := range map[string]int32{"2026-06-01T11:59:59Z": 1, "2026-06-01T11:00:00Z": 0} {
		body := []byte(`{"cluster":{"metadata":{"namespace":"team-a","name":"new","creationTimestamp":"` + created +
			`","labels":{"capi-proxy-patcher.io/enabled":"true"}}}}`)
		q, err := request.DecodeNewCluster(body)
		if err != nil {
			t.Fatal(err)
		}
		response := &runtimehooksv1.BeforeClusterCreateResponse{}
		if h.holdBack(t.Context(), q, response); response.RetryAfterSeconds != want ||
			response.Status != runtimehooksv1.ResponseStatusSuccess || len(asked) > 0 {
			t.Errorf("created at %s: again in %d s, %q", created, response.RetryAfterSeconds, response.Message)
		}
	}
}
