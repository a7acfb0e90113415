package webhook_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/crdschema"
)

// user writes one object again and again, past the webhooks, to an API server that validates it.
type user struct {
	*testing.T

	kind    string
	cluster clusterv1.Cluster
	stored  map[string]any
}

// write sends a write and returns what the API server stores.
func (u *user) write(requested map[string]any) map[string]any {
	u.Helper()
	pool := clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers"}}
	pool.Spec.ClusterName = u.cluster.Name
	pool.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		Kind: plan.KindTemplate,
		Name: "one",
	}
	handler := serve(u.T,
		newWorld(u.T, &u.cluster, &pool), newWorld(u.T))
	call := func(requested map[string]any) map[string]any {
		answer := response(u.T, u.send(handler, requested))
		if answer.Patch == nil {
			return requested
		}
		object := decodeText(u.T, after(u.T, string(encode(u.T, requested)), answer))
		for _, o := range []map[string]any{object, crdschema.AsV1Beta1(u.T, object)} {
			if problems := crdschema.Problems(u.T, o); len(problems) > 0 {
				u.Fatalf("%s %s: %v\nafter %.2000s", o["apiVersion"], o["kind"], problems, answer.Patch)
			}
		}
		return object
	}
	object := call(requested)
	if diff := cmp.Diff(object, call(object)); diff != "" {
		u.Fatalf("called again on its own answer (-first +second):\n%s", diff)
	}
	u.stored = object
	return object
}

func (u *user) send(handler http.Handler, requested map[string]any) *httptest.ResponseRecorder {
	u.Helper()
	body := review(u.T, string(encode(u.T, requested)), func(r *admissionv1.AdmissionRequest) {
		if r.Name = "one"; u.stored != nil {
			r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: encode(u.T, u.stored)}
		}
	})
	return postTo(u.T, handler, u.kind, body)
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// spec returns the bootstrap spec of an object.
func (u *user) spec(object map[string]any) patch.Spec {
	spec := api.Locate(u.kind, object)
	return api.Spec(spec)
}

// without returns object without some of its lists.
func (u *user) without(object map[string]any, lists ...patch.List) map[string]any {
	u.Helper()
	copied := decodeText(u.T, string(encode(u.T, object)))
	spec := api.Locate(u.kind, copied)
	for _, list := range lists {
		delete(spec, string(list))
	}
	if len(spec) == 0 { // the API accepts no empty one
		return map[string]any{
			"apiVersion": copied["apiVersion"], "kind": copied["kind"], "metadata": copied["metadata"],
			"spec": copied["spec"],
		}
	}
	return copied
}

func newUser(t *testing.T, kind string) *user {
	t.Helper()
	u := &user{T: t, kind: kind, cluster: labelled()}
	u.cluster.Spec.ControlPlaneRef.Name = "one"
	u.cluster.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
	return u
}

func TestAdmission_LetsUsersRemoveTheirCommands(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{plan.KindControlPlane, plan.KindTemplate} {
		u := newUser(t, kind)
		spec := map[string]any{
			"files": []any{map[string]any{"path": "/etc/%\"'`$x", "content": "{{ x }}"}}, "format": "ignition",
			"preKubeadmCommands": []any{`echo '"`}, "postKubeadmCommands": []any{"echo done"},
		}
		object := map[string]any{
			"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": kind,
			"metadata": map[string]any{"name": "one", "namespace": "ns"},
		}
		object["spec"] = map[string]any{
			"version": "v1.36.3", "kubeadmConfigSpec": spec, "machineTemplate": map[string]any{"spec": map[string]any{"infrastructureRef": map[string]any{
				"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DemoMachineTemplate", "name": "one",
			}}},
		}
		if kind == plan.KindTemplate {
			object["apiVersion"], object["spec"] = "bootstrap.cluster.x-k8s.io/v1beta2",
				map[string]any{"template": map[string]any{"spec": spec}}
		}
		patched := u.write(object)
		if post := u.spec(patched).PostKubeadmCommands; len(post) != 2 {
			t.Fatalf("%s: postKubeadmCommands are %q", kind, post)
		}
		for _, lists := range [][]patch.List{
			{patch.ListPost},
			{patch.ListPost, patch.ListPre},
			{patch.ListPost, patch.ListPre, patch.ListFiles},
		} {
			u.stored = patched
			got := u.spec(u.write(u.without(object, lists...)))
			if !patch.IsPatched(got) || len(got.PostKubeadmCommands) > 0 {
				t.Errorf("%s without %s: %+v", kind, lists, got)
			}
		}
	}
}

func TestAdmission_AnswersAreValid(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // for tests
	lists := []patch.List{patch.ListFiles, patch.ListPre, patch.ListPost}
	for _, kind := range []string{plan.KindControlPlane, plan.KindTemplate} {
		for range 6 {
			u := newUser(t, kind)
			object := crdschema.Object(random, kind, "v1beta2")
			patched := u.write(object)
			if diff := cmp.Diff(patched, u.write(object)); diff != "" {
				t.Fatalf("applied again (-before +after):\n%s", diff)
			}
			u.cluster.Annotations = map[string]string{contract.AnnotationTargets: "containerd"}
			u.write(object)
			u.cluster.Annotations = nil
			u.write(u.stored)
			for range 3 {
				next := crdschema.Object(random, kind, "v1beta2")
				random.Shuffle(len(lists), func(i, j int) { lists[i], lists[j] = lists[j], lists[i] })
				for _, requested := range []map[string]any{u.without(u.stored, lists[:random.IntN(4)]...), next, u.stored} {
					if len(crdschema.Problems(t, requested)) == 0 {
						u.write(requested)
					}
				}
			}
			before := patch.Apply(u.spec(u.stored), patch.Remove(u.spec(u.stored)))
			u.cluster.Labels = nil
			u.write(u.stored)
			if diff := cmp.Diff(before, u.spec(u.stored), cmpopts.EquateEmpty()); diff != "" ||
				patch.IsPatched(u.spec(u.stored)) {
				t.Fatalf("after removal (-before +after):\n%s", diff)
			}
		}
	}
}

func TestAdmission_LeavesInvalidWritesToTheAPIServer(t *testing.T) {
	t.Parallel()
	u := newUser(t, plan.KindControlPlane)
	handler := serve(t, clustersOf(t, u.cluster), newWorld(t))
	for _, spec := range []string{
		`"text"`, `["list"]`, `{"kubeadmConfigSpec":"text"}`, `{"kubeadmConfigSpec":{"preKubeadmCommands":"rm -rf /"}}`,
		`{"kubeadmConfigSpec":{"files":{"path":"/mine"}}}`, `{"kubeadmConfigSpec":{"postKubeadmCommands":1}}`,
	} {
		requested := decodeText(t, `{"metadata":{"name":"one"},"spec":`+spec+`}`)
		if got := response(t, u.send(handler, requested)); got.Patch != nil {
			t.Errorf("spec %s: patched with %.200s", spec, got.Patch)
		}
	}
}
