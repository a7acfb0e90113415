package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/webhook"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

func labelled() clusterv1.Cluster {
	cluster := clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "one", Labels: map[string]string{contract.LabelEnabled: contract.LabelEnabledValue},
	}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindControlPlane, Name: "cp"}
	return cluster
}

// serve returns webhooks with a cache and an API server, for all Clusters or for those of a scope.
func serve(t *testing.T, cached, live client.Reader, scope ...settings.Scope) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	hooks := &webhook.Webhook{
		Cached: cached, Live: live,
		Memory: &world.Memory{Live: live, Mapper: meta.NewDefaultRESTMapper(nil)},
		Now:    func() time.Time { return time.Time{} },
	}
	if len(scope) > 0 {
		hooks.Scope = scope[0]
	}
	if err := hooks.Register(registrar{mux}); err != nil {
		t.Fatal(err)
	}
	return mux
}

type registrar struct{ *http.ServeMux }

func (r registrar) Register(path string, handler http.Handler) { r.Handle(path, handler) }

func review(t *testing.T, object string, edit ...func(*admissionv1.AdmissionRequest)) string {
	t.Helper()
	request := &admissionv1.AdmissionRequest{
		UID: "uid", Namespace: "ns", Name: "cp", Operation: admissionv1.Create,
		Object: runtime.RawExtension{Raw: []byte(object)},
	}
	for _, e := range edit {
		e(request)
	}
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func post(t *testing.T, handler http.Handler, body string) *httptest.ResponseRecorder {
	t.Helper()
	return postTo(t, handler, plan.KindControlPlane, body)
}

// postTo sends a review to the webhook of a kind.
func postTo(t *testing.T, handler http.Handler, kind, body string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhook.Path(kind), strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

func response(t *testing.T, recorder *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || recorder.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %s", recorder.Code, err, recorder.Body)
	}
	if !answer.Response.Allowed || answer.Response.UID != "uid" {
		t.Errorf("allowed %v, UID %s", answer.Response.Allowed, answer.Response.UID)
	}
	return answer.Response
}

// hostile has fields that this program does not know, where it could lose them, and text that a patch could break.
const hostile = `{
  "metadata": {"name": "cp", "namespace": "ns", "annotations": {"a~b/c": "{{ x }}"}, "future": {"a": 1}},
  "future": [1, 2.5, 12345678901234567890],
  "spec": {
    "version": "v1.36.3", "future": true,
    "kubeadmConfigSpec": {
      "future": {"files": []},
      "files": [{"path": "/etc/%\"'\\$` + "`" + `", "content": "{% x %}\n", "future": {"deep": [null]}}],
      "preKubeadmCommands": ["echo \"$(date)\" '%s' {{ ds }}\n"]
    }
  }
}`

func TestAdmission_PatchesOnceAndRestores(t *testing.T) {
	t.Parallel()
	handler := serve(t, clustersOf(t, labelled()), newWorld(t))
	body := review(t, hostile)
	first := post(t, handler, body)
	if diff := cmp.Diff(first.Body.String(), post(t, handler, body).Body.String()); diff != "" {
		t.Errorf("a second answer differs:\n%s", diff)
	}
	patched := after(t, hostile, response(t, first))
	if !strings.Contains(patched, contract.PathProxyEnv) {
		t.Fatalf("not patched: %s", patched)
	}
	if again := response(t, post(t, handler, review(t, patched))); again.Patch != nil {
		t.Errorf("called again on its own answer: %s", again.Patch)
	}

	// Take the label away: what is left is what was there.
	cluster := labelled()
	cluster.Labels = nil
	cluster.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
	update := review(t, patched, func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.OldObject = admissionv1.Update, r.Object
	})
	removed := response(t, post(t, serve(t, clustersOf(t, cluster), newWorld(t)), update))
	var want, got any
	if err := errors.Join(json.Unmarshal([]byte(hostile), &want),
		json.Unmarshal([]byte(after(t, patched, removed)), &got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the label is gone (-before +after):\n%s", diff)
	}
}

func TestAdmission_ChangesAControlPlaneWithoutMachinesOnlyAtRest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, status, rollout string
		want                  bool
	}{
		{name: "Cluster API has not seen it", want: true},
		{name: "Cluster API has other conditions", status: `{"conditions":[{"type":"Available","status":"False"}]}`, want: true},
		{name: "Cluster API has noticed a pause", status: `{"conditions":[{"type":"Paused","status":"True"}]}`, want: true},
		{name: "Cluster API works on it", status: `{"conditions":[{"type":"Available","status":"True"},{"type":"Paused","status":"False"}]}`},
		{name: "and the rollout is immediate", status: `{"conditions":[{"type":"Paused","status":"False"}]}`, rollout: contract.RolloutImmediate},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cluster := labelled()
			if test.rollout != "" {
				cluster.Annotations = map[string]string{contract.AnnotationRollout: test.rollout}
			}
			status := ""
			if test.status != "" {
				status = `,"status":` + test.status
			}
			update := review(t, `{"metadata":{"name":"cp"},"spec":{"replicas":3}`+status+`}`,
				func(r *admissionv1.AdmissionRequest) {
					r.Operation, r.OldObject.Raw = admissionv1.Update,
						[]byte(`{"metadata":{"name":"cp"},"spec":{"replicas":1}`+status+`}`)
				})
			got := response(t, post(t, serve(t, clustersOf(t, cluster), newWorld(t)), update)).Patch
			if (got != nil) != test.want {
				t.Errorf("patched: %v, want %v: %s", got != nil, test.want, got)
			}
		})
	}
}

func TestLookup_ReadsLiveOnACacheMiss(t *testing.T) {
	t.Parallel()
	for name, cached := range map[string]*shown{
		"a Cluster that the cache has not seen": newWorld(t),
		"a cache that cannot answer":            {err: errors.New("no informer")},
	} {
		live := clustersOf(t, labelled())
		for _, labels := range []string{``, `,"labels":{"cluster.x-k8s.io/cluster-name":"one"}`} {
			object := fmt.Sprintf(`{"metadata":{"name":"cp"%s},"spec":{}}`, labels)
			if got := response(t, post(t, serve(t, cached, live), review(t, object))); got.Patch == nil {
				t.Errorf("%s: not patched", name)
			}
		}
	}
}

func TestAdmission_AdmitsOtherWritesUnchanged(t *testing.T) {
	t.Parallel()
	const object = `{"metadata":{"name":"cp"%s},"spec":{}}`
	for name, test := range map[string]struct {
		metadata string
		cluster  func(*clusterv1.Cluster)
		request  func(*admissionv1.AdmissionRequest)
		reads    bool
	}{
		"of the controller": {request: func(r *admissionv1.AdmissionRequest) {
			r.Options.Raw = []byte(`{"kind":"PatchOptions","fieldManager":"capi-proxy-patcher"}`)
		}},
		"of a topology":              {metadata: `,"labels":{"topology.cluster.x-k8s.io/owned":""}`},
		"of an object that goes":     {metadata: `,"deletionTimestamp":"2026-01-01T00:00:00Z"`},
		"of a Cluster without label": {cluster: func(c *clusterv1.Cluster) { c.Labels = nil }, reads: true},
		"of a paused Cluster":        {cluster: func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }, reads: true},
		"of a Cluster with a class": {cluster: func(c *clusterv1.Cluster) {
			c.Spec.Topology.ClassRef.Name = "class"
		}, reads: true},
		"of an object that the Cluster does not refer to": {
			metadata: `,"labels":{"cluster.x-k8s.io/cluster-name":"one"}`, cluster: func(
				c *clusterv1.Cluster,
			) {
				c.Spec.ControlPlaneRef.Name = "other"
			}, reads: true,
		},
		"of a paused object":        {metadata: `,"annotations":{"cluster.x-k8s.io/paused":""}`, reads: true},
		"of a name to be generated": {request: func(r *admissionv1.AdmissionRequest) { r.Name = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := labelled()
			if test.cluster != nil {
				test.cluster(&cluster)
			}
			request := test.request
			if request == nil {
				request = func(*admissionv1.AdmissionRequest) {}
			}
			cached, live := clustersOf(t, cluster), newWorld(t)
			got := response(t, post(t, serve(t, cached, live), review(t, fmt.Sprintf(object, test.metadata), request)))
			if got.Patch != nil || len(got.Warnings) > 0 {
				t.Errorf("patch %s, warnings %v", got.Patch, got.Warnings)
			}
			if read := cached.reads+live.reads > 0; read != test.reads {
				t.Errorf("%d reads of the cache and %d live ones", cached.reads, live.reads)
			}
		})
	}
}

func TestWebhook_LeavesOtherManagersClustersAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		scope          settings.Scope
		label          string
		patched, reads bool
	}{
		{settings.Scope{}, "", true, true},
		{settings.Scope{}, "blue", true, true},
		{settings.Scope{Namespace: "ns"}, "", true, true},
		{settings.Scope{Namespace: "other"}, "", false, false},
		{settings.Scope{WatchFilter: "blue"}, "blue", true, true},
		{settings.Scope{WatchFilter: "blue"}, "green", false, true},
		{settings.Scope{WatchFilter: "blue"}, "", false, true},
	} {
		cluster := labelled()
		if test.label != "" {
			cluster.Labels[clusterv1.WatchLabel] = test.label
		}
		cached, live := clustersOf(t, cluster), newWorld(t)
		got := response(t, post(t, serve(t, cached, live, test.scope), review(t, hostile)))
		if reads := cached.reads+live.reads > 0; (got.Patch != nil) != test.patched || reads != test.reads {
			t.Errorf("%+v for a Cluster with %q: patch %s, reads: %v", test.scope, test.label, got.Patch, reads)
		}
	}
}

func TestAdmission_FailsWithoutDenying(t *testing.T) {
	t.Parallel()
	broken := &shown{err: errors.New("secret detail")}
	post := func(body, content string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhook.Path(plan.KindControlPlane),
			strings.NewReader(body))
		r.Header.Set("Content-Type", content)
		return r
	}
	for name, test := range map[string]struct {
		request *http.Request
		want    int
	}{
		"the API server is away": {post(review(t, hostile), "application/json"), http.StatusInternalServerError},
		"an object that is none": {post(review(t, `[]`), "application/json"), http.StatusInternalServerError},
		"no body":                {httptest.NewRequestWithContext(t.Context(), http.MethodGet, webhook.Path(plan.KindControlPlane), http.NoBody), http.StatusBadRequest},
		"another content type":   {post(review(t, hostile), "text/plain"), http.StatusBadRequest},
		"what is no review":      {post(`{"kind":`, "application/json"), http.StatusBadRequest},
		"8 MiB":                  {post(strings.Repeat(" ", 8<<20), "application/json"), http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := httptest.NewRecorder()
			serve(t, &shown{err: broken.err}, &shown{err: broken.err}).ServeHTTP(recorder, test.request)
			if recorder.Code != test.want {
				t.Errorf("status %d, want %d: %s", recorder.Code, test.want, recorder.Body)
			}
			for _, leak := range []string{"secret detail", "allowed", "{{ x }}"} {
				if strings.Contains(recorder.Body.String(), leak) {
					t.Errorf("the answer holds %q: %s", leak, recorder.Body)
				}
			}
		})
	}
}

func TestRegister_RequiresAllOfItsParts(t *testing.T) {
	t.Parallel()
	if err := (&webhook.Webhook{}).Register(registrar{http.NewServeMux()}); err == nil {
		t.Error("an empty Webhook was registered")
	}
}

func FuzzRequests(f *testing.F) {
	f.Add(`{"metadata":{"name":"cp"},"spec":{}}`, ``)
	f.Add(hostile, hostile)
	f.Add(`{"metadata":null,"spec":{"kubeadmConfigSpec":{"files":{"a":1},"preKubeadmCommands":[1,null,{}]}}}`,
		`{"spec":[]}`)
	f.Add(`{"metadata":{"annotations":[]},"spec":{"kubeadmConfigSpec":[]}}`, `{"status":{"replicas":"x"}}`)
	f.Fuzz(func(t *testing.T, object, old string) {
		if !json.Valid([]byte(object)) || old != "" && !json.Valid([]byte(old)) {
			return
		}
		handler := serve(t, clustersOf(t, labelled()), newWorld(t))
		body := review(t, object, func(r *admissionv1.AdmissionRequest) {
			if old != "" {
				r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(old)
			}
		})
		recorder := post(t, handler, body)
		if recorder.Code == http.StatusInternalServerError {
			return // not an object
		}
		if answer := response(t, recorder); answer.Patch != nil {
			if _, err := jsonpatch.DecodePatch(answer.Patch); err != nil {
				t.Errorf("patch %s: %v", answer.Patch, err)
			}
		}
	})
}
