package owners

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	cachetest "k8s.io/client-go/tools/cache/testing"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/caches"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/slim"
)

// cachedClusters returns a cache with n enabled Clusters of 100 Namespaces, all by the Secret of their Namespace, and
// their index.
func cachedClusters(tb testing.TB, n int) (cache.Cache, toolscache.Indexer) {
	tb.Helper()
	scheme, err := caches.NewScheme()
	if err != nil {
		tb.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, version := range []struct {
		kinds []string
		of    runtime.Object
	}{
		{[]string{"Cluster", "MachineDeployment", "MachinePool", "Machine"}, &clusterv1.Cluster{}},
		{[]string{"KubeadmConfig", "KubeadmConfigTemplate"}, &bootstrapv1.KubeadmConfig{}},
		{[]string{"KubeadmControlPlane"}, &controlplanev1.KubeadmControlPlane{}},
		{[]string{"Secret"}, &corev1.Secret{}},
	} {
		known, _, err := scheme.ObjectKinds(version.of)
		if err != nil {
			tb.Fatal(err)
		}
		for _, kind := range version.kinds {
			mapper.Add(known[0].GroupVersion().WithKind(kind), meta.RESTScopeNamespace)
		}
	}
	var index toolscache.Indexer
	c, err := caches.New(&rest.Config{}, cache.Options{
		Mapper: mapper,
		NewInformer: func(_ toolscache.ListerWatcher, object runtime.Object, resync time.Duration,
			indexers toolscache.Indexers,
		) toolscache.SharedIndexInformer {
			informer := toolscache.NewSharedIndexInformer(cachetest.NewFakeControllerSource(), object, resync, indexers)
			if _, clusters := object.(*slim.Cluster); clusters {
				index = informer.GetIndexer()
			}
			return informer
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := caches.SetupIndexes(tb.Context(), c); err != nil {
		tb.Fatal(err)
	}
	go func() { _ = c.Start(tb.Context()) }()
	if !c.WaitForCacheSync(tb.Context()) {
		tb.Fatal("the cache is not synced")
	}
	for i := range n {
		cluster := &slim.Cluster{}
		cluster.SetNamespace(fmt.Sprintf("team-%02d", i%100))
		if i%2 == 0 {
			cluster.SetNamespace("team")
		}
		cluster.SetName(fmt.Sprintf("cluster-%05d", i))
		cluster.SetLabels(map[string]string{contract.LabelEnabled: contract.LabelEnabledValue})
		cluster.Keep()
		if err := index.Add(cluster); err != nil {
			tb.Fatal(err)
		}
	}
	return c, index
}

// TestOfProxySecret_FindsByTheIndexOfTheManagersCache fails if controller-runtime looks for an index under another name,
// or for other values.
func TestOfProxySecret_FindsByTheIndexOfTheManagersCache(t *testing.T) {
	t.Parallel()
	c, _ := cachedClusters(t, 4)
	for namespace, want := range map[string]int{"team": 2, "team-01": 1, "team-0": 0} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.DefaultSecretName}}
		if got := (Finder{Client: c}).OfProxySecret(t.Context(), secret); len(got) != want {
			t.Errorf("namespace %s: found %v, want %d Clusters", namespace, got, want)
		}
	}
}

// BenchmarkOfProxySecret finds the 10,000 Clusters of a Secret among 20,000. Its floor is the index alone.
func BenchmarkOfProxySecret(b *testing.B) {
	const found = 10_000
	c, index := cachedClusters(b, 2*found)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: contract.DefaultSecretName}}
	b.Run("found", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if requests := (Finder{Client: c}).OfProxySecret(b.Context(), secret); len(requests) != found {
				b.Fatalf("%d requests", len(requests))
			}
		}
	})
	b.Run("floor", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			objects, err := index.ByIndex("field:"+caches.IndexSecret, "team/"+contract.DefaultSecretName)
			if err != nil || len(objects) != found {
				b.Fatalf("%d objects, %v", len(objects), err)
			}
		}
	})
}
