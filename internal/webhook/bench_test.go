package webhook_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// clusterCache is a cache of one Cluster and its generated Secret, which costs what controller-runtime's does.
type clusterCache struct {
	*shown

	cluster *kinds.Cluster
	secret  *corev1.Secret
}

func (c clusterCache) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	switch object := into.(type) {
	case *kinds.Cluster:
		c.cluster.DeepCopyInto(object)
		return nil
	case *corev1.Secret:
		c.secret.DeepCopyInto(object)
		return nil
	}
	return c.shown.Get(ctx, key, into, o...)
}

func (c clusterCache) List(_ context.Context, list client.ObjectList, o ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(o)
	if clusters, ok := list.(*kinds.ClusterList); ok {
		clusters.Items = []kinds.Cluster{*c.cluster.DeepCopy()}
	}
	return nil
}

// controlPlaneOf returns a control plane in the shape that people use, in JSON.
func controlPlaneOf(tb testing.TB, change func(*controlplanev1.KubeadmControlPlane)) []byte {
	tb.Helper()
	request, err := hookrequests.Generate(hookrequests.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	var template controlplanev1.KubeadmControlPlaneTemplate
	if err := json.Unmarshal(request.Items[1].Object.Raw, &template); err != nil {
		tb.Fatal(err)
	}
	o := vocabulary.NewClassic("ns", "one", "linux").ControlPlane
	o.SetGroupVersionKind(controlplanev1.GroupVersion.WithKind(plan.KindControlPlane))
	o.Spec.KubeadmConfigSpec = template.Spec.Template.Spec.KubeadmConfigSpec
	change(o)
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// BenchmarkAdmission answers the creation of a control plane, and an update that scales a patched one.
func BenchmarkAdmission(b *testing.B) {
	classic := vocabulary.NewClassic("ns", "one", "linux")
	classic.Cluster.Labels = labelled().Labels
	cache := clusterCache{newWorld(b), api.As[kinds.Cluster](classic.Cluster), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: intent.GeneratedSecretName("one"), Labels: map[string]string{contract.LabelGenerated: "one"},
	}}}
	handler := serve(b, cache, cache)
	call := func(body string) *httptest.ResponseRecorder {
		recorder := postTo(b, handler, plan.KindControlPlane, body)
		if recorder.Code != http.StatusOK {
			b.Fatal(recorder.Body)
		}
		return recorder
	}
	managed := func(o *controlplanev1.KubeadmControlPlane) {
		fields := `{"f:spec":{` + strings.TrimSuffix(strings.Repeat(`"f:field":{".":{},"f:other":{}},`, 100), ",") + `}}`
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(fields)}}
	}
	create := review(b, "{}", func(r *admissionv1.AdmissionRequest) {
		r.Name = classic.ControlPlane.Name
		r.Object.Raw = controlPlaneOf(b, func(*controlplanev1.KubeadmControlPlane) {})
	})
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(call(create).Body.Bytes(), &answer); err != nil {
		b.Fatal(err)
	}
	operations, err := jsonpatch.DecodePatch(answer.Response.Patch)
	if err != nil {
		b.Fatal(err)
	}
	scale := review(b, "{}", func(r *admissionv1.AdmissionRequest) {
		r.Name, r.Operation = classic.ControlPlane.Name, admissionv1.Update
		for replicas, text := range map[int32]*[]byte{3: &r.OldObject.Raw, 5: &r.Object.Raw} {
			stored := controlPlaneOf(b, func(o *controlplanev1.KubeadmControlPlane) {
				managed(o)
				o.Spec.Replicas = &replicas
			})
			if *text, err = operations.Apply(stored); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, body := range map[string]string{"create": create, "scale": scale} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				call(body)
			}
		})
	}
}
