package webhook_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/webhook"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// clusterCache is a cache of one Cluster, which costs what controller-runtime's does.
type clusterCache struct {
	*world

	cluster *clusterv1.Cluster
}

func (c clusterCache) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	if cluster, ok := into.(*clusterv1.Cluster); ok {
		c.cluster.DeepCopyInto(cluster)
		return nil
	}
	return c.world.Get(ctx, key, into, o...)
}

func (c clusterCache) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if clusters, ok := list.(*clusterv1.ClusterList); ok {
		clusters.Items = []clusterv1.Cluster{*c.cluster.DeepCopy()}
		return nil
	}
	return c.world.List(ctx, list, o...)
}

// BenchmarkAdmission answers the creation of a control plane, and an update that scales a patched one.
func BenchmarkAdmission(b *testing.B) {
	classic := vocabulary.NewClassic("ns", "one", "linux")
	classic.Cluster.Labels = labelled().Labels
	cache := clusterCache{newWorld(b), classic.Cluster}
	now := func() time.Time { return time.Unix(0, 0) }
	hooks := &webhook.Webhook{
		Cached: cache, Live: cache, Secrets: lookup.Secrets{},
		Infrastructure:         &lookup.Infrastructure{Live: cache, Mapper: unknownKinds{}},
		InfrastructureClusters: &lookup.InfrastructureClusters{Live: cache, Mapper: unknownKinds{}},
		Absences:               &lookup.Absences{Now: now}, Now: now,
	}
	mux := http.NewServeMux()
	if err := hooks.Register(registrar{mux}); err != nil {
		b.Fatal(err)
	}
	object := func(change func(*controlplanev1.KubeadmControlPlane)) []byte {
		o := classic.ControlPlane.DeepCopy()
		o.SetGroupVersionKind(controlplanev1.GroupVersion.WithKind(plan.KindControlPlane))
		change(o)
		text, err := json.Marshal(o)
		if err != nil {
			b.Fatal(err)
		}
		return text
	}
	managed := func(o *controlplanev1.KubeadmControlPlane) {
		fields := `{"f:spec":{` + strings.TrimSuffix(strings.Repeat(`"f:field":{".":{},"f:other":{}},`, 100), ",") + `}}`
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(fields)}}
	}
	for name, change := range map[string]func(*admissionv1.AdmissionRequest){
		"create": func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = object(func(*controlplanev1.KubeadmControlPlane) {})
		},
		"scale": func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.OldObject.Raw = admissionv1.Update, object(managed)
			r.Object.Raw = object(func(o *controlplanev1.KubeadmControlPlane) {
				managed(o)
				o.Spec.Replicas = new(int32(5))
			})
		},
	} {
		b.Run(name, func(b *testing.B) {
			body := review(b, "{}", func(r *admissionv1.AdmissionRequest) { r.Name = classic.ControlPlane.Name; change(r) })
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, webhook.Path(plan.KindControlPlane),
					strings.NewReader(body))
				request.Header.Set("Content-Type", "application/json")
				recorder := httptest.NewRecorder()
				mux.ServeHTTP(recorder, request)
				if recorder.Code != http.StatusOK {
					b.Fatal(recorder.Body)
				}
			}
		})
	}
}
