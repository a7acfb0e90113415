package webhook_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/webhook"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// world is a reader of some objects, by the indexes of package plan.
type world struct {
	objects []client.Object
	scheme  *runtime.Scheme
	// gets are the names of the Secrets that were asked for.
	gets []string
	// lists are the kinds of the lists that were asked for.
	lists []string
	// clusters is how many Clusters were asked for.
	clusters int
}

func newWorld(tb testing.TB, objects ...client.Object) *world {
	tb.Helper()
	scheme, err := api.NewProgramScheme()
	if err != nil {
		tb.Fatal(err)
	}
	return &world{objects: objects, scheme: scheme}
}

func (w *world) kindOf(object runtime.Object) schema.GroupVersionKind {
	if kind := object.GetObjectKind().GroupVersionKind(); kind.Kind != "" {
		return kind
	}
	of, _, err := w.scheme.ObjectKinds(object)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return of[0]
}

// copyInto gives into what it can hold of object.
func copyInto(object client.Object, into any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := w.kindOf(into)
	if kind.Kind == "Secret" {
		w.gets = append(w.gets, key.Name)
	}
	if kind.Kind == "Cluster" {
		w.clusters++
	}
	for _, object := range w.objects {
		if w.kindOf(object).GroupKind() == kind.GroupKind() && client.ObjectKeyFromObject(object) == key {
			return copyInto(object, into)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind.Kind}, key.Name)
}

func (w *world) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	kind := strings.TrimSuffix(w.kindOf(list).Kind, "List")
	w.lists = append(w.lists, kind)
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	items.SetZero()
	for _, object := range w.objects {
		if w.kindOf(object).Kind != kind || object.GetNamespace() != o.Namespace ||
			o.LabelSelector != nil && !o.LabelSelector.Matches(labelSet(object.GetLabels())) ||
			o.FieldSelector != nil && !o.FieldSelector.Matches(indexed{object}) {
			continue
		}
		item := reflect.New(items.Type().Elem())
		if err := copyInto(object, item.Interface()); err != nil {
			return err
		}
		items.Set(reflect.Append(items, item.Elem()))
	}
	return nil
}

type labelSet map[string]string

func (s labelSet) Has(key string) bool              { _, found := s[key]; return found }
func (s labelSet) Get(key string) string            { return s[key] }
func (s labelSet) Lookup(key string) (string, bool) { value, found := s[key]; return value, found }

// indexed are the values of an object in the indexes.
type indexed struct{ object client.Object }

func (i indexed) Has(string) bool { return true }

func (i indexed) Get(field string) string {
	switch field {
	case lookup.IndexControlPlane:
		cluster, _ := i.object.(*kinds.Cluster)
		return cluster.Spec.ControlPlaneRef.Name
	case lookup.IndexBootstrap:
		return plan.PoolOf(i.object).Bootstrap.Name
	default:
		return i.object.GetLabels()[clusterv1.ClusterNameLabel]
	}
}

// clusterNamed is a Cluster that is labelled, or was and is still reported on.
func clusterNamed(name string, enabled bool) *kinds.Cluster {
	cluster := labelled()
	cluster.Name = name
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
	if !enabled {
		cluster.Labels = nil
		cluster.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
	}
	return &cluster
}

// deployment is MachineDeployment md, which uses KubeadmConfigTemplate md.
func deployment(cluster string) *kinds.MachineDeployment {
	pool := &kinds.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "md"}}
	pool.Spec.ClusterName = cluster
	pool.Spec.Template.Spec.Bootstrap.ConfigRef = kinds.Reference{
		APIGroup: bootstrapv1.GroupVersion.Group, Kind: plan.KindTemplate, Name: "md",
	}
	return pool
}

// unknownKinds is a mapper that knows no kind of infrastructure.
type unknownKinds struct{ meta.RESTMapper }

func (unknownKinds) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// ask sends a request about an object of a kind to webhooks with a cache and an API server.
func ask(t *testing.T, cached, live *world, kind, name, stored,
	asked string,
) *admissionv1.AdmissionResponse {
	t.Helper()
	mux := http.NewServeMux()
	hooks := &webhook.Webhook{
		Cached: cached, Live: live,
		Infrastructure: &lookup.Infrastructure{Live: live, Mapper: unknownKinds{}},
		Now:            func() time.Time { return time.Time{} },
	}
	if err := hooks.Register(registrar{mux}); err != nil {
		t.Fatal(err)
	}
	body := review(t, asked, func(r *admissionv1.AdmissionRequest) {
		r.Name = name
		if stored != "" {
			r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(stored)
		}
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhook.Path(kind), strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, request)
	return response(t, recorder)
}
