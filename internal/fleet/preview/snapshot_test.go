package preview

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

func TestSnapshot_ListsAKindOnceAndShowsChanges(t *testing.T) {
	t.Parallel()
	scheme, err := world.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cluster := func(controlPlane string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod"}}
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindControlPlane, Name: controlPlane}
		return c
	}
	secret := func(namespace, name string, labels ...string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}}
		for _, label := range labels {
			s.Labels[label] = "prod"
		}
		return s
	}
	lists := 0
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster("old"), secret("ns", "http-proxy", contract.LabelProxySecret),
		secret("ns", "prod-proxy-files", contract.LabelGenerated, contract.LabelProxySecret), secret("ns", "unlabelled"),
		secret("operators", "elsewhere")).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			lists++
			return c.List(ctx, list, options...)
		},
	}).Build()
	installation := secret("operators", "elsewhere")
	installation.Data = map[string][]byte{contract.KeyHTTPProxy: []byte("new")}
	r, err := newSnapshot(t.Context(), api, "ns", cluster("new"), installation)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var clusters clusterv1.ClusterList
		err := r.List(t.Context(), &clusters, client.MatchingFields{world.IndexControlPlane: "new"})
		if err != nil || len(clusters.Items) != 1 {
			t.Fatalf("%d changed Clusters: %v", len(clusters.Items), err)
		}
	}
	if lists != 1 {
		t.Errorf("the API server is asked for %d lists, want 1", lists)
	}
	for key, want := range map[client.ObjectKey]bool{
		{Namespace: "ns", Name: "prod-proxy-files"}: true, {Namespace: "ns", Name: "http-proxy"}: true,
		{Namespace: "ns", Name: "unlabelled"}: false, {Namespace: "operators", Name: "elsewhere"}: true,
	} {
		if err := r.Get(t.Context(), key, &corev1.Secret{}); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t: %v", key, err == nil, want, err)
		}
	}
	shown := &corev1.Secret{}
	if err := r.Get(t.Context(), client.ObjectKeyFromObject(installation), shown); err != nil ||
		string(shown.Data[contract.KeyHTTPProxy]) != "new" {
		t.Errorf("a changed Secret of another namespace has %q: %v", shown.Data, err)
	}
	live := &clusterv1.Cluster{}
	if err := r.changed.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "prod"}, live); err != nil ||
		live.Spec.ControlPlaneRef.Name != "new" {
		t.Errorf("a live read shows %q: %v", live.Spec.ControlPlaneRef.Name, err)
	}
}
