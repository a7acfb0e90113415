package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// clusters is how many there are.
const clusters = 30

// BenchmarkPass measures a pass over a Cluster that is as it should be: a control plane and three pools, with one proxy
// Secret for all Clusters, in the manager's own caches.
func BenchmarkPass(b *testing.B) {
	reconciler := converged(b, nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		pass(b, reconciler, i%clusters)
	}
}

// BenchmarkPassThatWrites measures one over such a Cluster after a change of its proxy Secret. The API server, which
// answers with what it gets, is measured with it.
func BenchmarkPassThatWrites(b *testing.B) {
	changing := proxySecret()
	reconciler := converged(b, reader{Reader: one{secret: changing}})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changing.Data = maps.Clone(changing.Data)
		changing.Data["httpProxy"] = fmt.Appendf(nil, "http://proxy-%d.example.com:3128", i)
		pass(b, reconciler, i%clusters)
	}
}

const team = "team"

func nameOf(i int) string { return fmt.Sprintf("cluster-%05d", i) }

func pass(tb testing.TB, reconciler reconcile.Reconciler, i int) {
	tb.Helper()
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: team, Name: nameOf(i)}}
	if result, err := reconciler.Reconcile(tb.Context(), request); err != nil || !result.IsZero() {
		tb.Fatal(result, err)
	}
}

func proxySecret() *corev1.Secret {
	proxy := vocabulary.ProxySecret("operators", "proxy", nil)
	proxy.Data = map[string][]byte{
		"httpProxy": []byte("http://proxy.example.com:3128"), "username": []byte("node"), "password": []byte("s3cr%t"),
		"noProxy": []byte(".corp.example.com,10.20.0.0/16"),
	}
	return proxy
}

// converged returns a controller with caches of configured Clusters. secrets is the cache of proxy Secrets, nil for one
// of the manager.
func converged(tb testing.TB, secrets cache.Cache) reconcile.Reconciler {
	tb.Helper()
	own, err := api.NewScheme()
	must(tb, err)
	objects := []client.Object{proxySecret()}
	for i := range clusters {
		objects = append(objects, classic(nameOf(i))...)
	}
	building := fake.NewClientBuilder().WithScheme(own).WithObjects(objects...).
		WithStatusSubresource(&clusterv1.Cluster{})
	must(tb, world.SetupIndexes(tb.Context(), indexer{building}))
	stored := building.Build()
	shown, err := api.NewClient(stored)
	must(tb, err)
	first := newController(tb, shown, reader{Reader: shown})
	for i := range clusters {
		pass(tb, first, i)
	}
	server := httptest.NewServer(lists{stored})
	tb.Cleanup(server.Close)
	options, err := world.CacheOptions("", time.Hour)
	must(tb, err)
	options.Scheme = shown.Scheme()
	config := &rest.Config{Host: server.URL, QPS: -1}
	main := start(tb, config, options)
	cached, err := client.New(config, client.Options{
		Scheme: shown.Scheme(), Mapper: mapper{}, Cache: &client.CacheOptions{Reader: main},
	})
	must(tb, err)
	if secrets == nil {
		options, err := world.ProxySecretCacheOptions("", "", shown.Scheme())
		must(tb, err)
		secrets = start(tb, config, options)
	}
	return newController(tb, cached, secrets)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// classic is a labelled Cluster without MachinePools and with three MachineDeployments.
func classic(name string) []client.Object {
	c := vocabulary.NewClassic(team, name, "machines")
	c.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	objects := []client.Object{c.Cluster, c.ControlPlane}
	for i := range 3 {
		deployment, template := c.Deployment.DeepCopy(), c.Template.DeepCopy()
		template.Name = fmt.Sprintf("%s-md-%d", name, i)
		deployment.Name, deployment.Spec.Template.Spec.Bootstrap.ConfigRef.Name = template.Name, template.Name
		objects = append(objects, template, deployment)
	}
	for _, object := range objects {
		object.SetUID(types.UID(fmt.Sprintf("%T/%s", object, object.GetName())))
		object.SetLabels(map[string]string{clusterv1.ClusterNameLabel: name, contract.LabelEnabled: contract.LabelEnabledValue})
	}
	return objects
}

func newController(tb testing.TB, c client.Client, secrets cache.Cache) reconcile.Reconciler {
	tb.Helper()
	now := func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }
	made, err := controller.New(controller.Config{
		Client: c, Live: c,
		Memory: &world.Memory{
			Cached: c, Live: c, ProxySecrets: secrets, Mapper: mapper{}, Now: now,
			Installation: resolve.Installation{
				Secret:     types.NamespacedName{Namespace: "operators", Name: "proxy"},
				Namespaces: resolve.EveryNamespace{},
			},
		},
		Admission: true, Recorder: events.NewFakeRecorder(1000), Now: now,
	})
	must(tb, err)
	return reconcile.AsReconciler(c, made)
}

// indexer has the fake client index as a cache does.
type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	scheme, err := api.NewScheme()
	if err != nil {
		return err
	}
	shown, err := api.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build())
	if err != nil {
		return err
	}
	object, values, err = shown.Index(object, values)
	i.WithIndex(object, field, values)
	return err
}

// reader is a cache that only reads.
type reader struct {
	cache.Cache
	client.Reader
}

func (r reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, with ...client.GetOption) error {
	return r.Reader.Get(ctx, key, into, with...)
}

func (r reader) List(ctx context.Context, into client.ObjectList, with ...client.ListOption) error {
	return r.Reader.List(ctx, into, with...)
}

// one has one Secret, if any.
type one struct {
	client.Reader
	secret *corev1.Secret
}

func (o one) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if secret, ok := into.(*corev1.Secret); ok && o.secret != nil && key.Name == o.secret.Name {
		*secret = *o.secret
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// mapper knows no kind of infrastructure.
type mapper struct{ meta.RESTMapper }

func (mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if strings.HasPrefix(kind.Group, "infrastructure.") {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	gvk := kind.WithVersion(versions[0])
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return &meta.RESTMapping{Resource: plural, GroupVersionKind: gvk, Scope: meta.RESTScopeNamespace}, nil
}

// start fills a cache from a server.
func start(tb testing.TB, config *rest.Config, options cache.Options) cache.Cache {
	tb.Helper()
	options.Mapper = mapper{}
	made, err := cache.New(config, options)
	must(tb, err)
	read := slices.Collect(maps.Keys(options.ByObject))
	if len(read) > 1 {
		read = append(read, &kinds.KubeadmControlPlane{}, &kinds.KubeadmConfigTemplate{}, world.MachineMetadata())
		must(tb, world.SetupIndexes(tb.Context(), made))
	}
	for _, kind := range read {
		_, err := made.GetInformer(tb.Context(), kind, cache.BlockUntilSynced(false))
		must(tb, err)
	}
	ctx, stop := context.WithCancel(tb.Context())
	tb.Cleanup(stop)
	go func() { _ = made.Start(ctx) }()
	if !made.WaitForCacheSync(ctx) {
		tb.Fatal("the cache is not filled")
	}
	return made
}

// lists serves lists of what a client has, watches without events, and writes without effect.
type lists struct{ client.Client }

func (l lists) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		text, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write(text)
		return
	}
	query := r.URL.Query()
	if query.Get("sendInitialEvents") != "" { // a list follows
		http.Error(w, "", http.StatusUnprocessableEntity)
		return
	}
	if query.Get("watch") != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // apis/GROUP/VERSION/RESOURCE, or api/VERSION/RESOURCE
	list := &unstructured.UnstructuredList{}
	for gvk := range l.Scheme().AllKnownTypes() {
		if plural, _ := meta.UnsafeGuessKindToResource(gvk); slices.Equal(path[1:],
			slices.DeleteFunc([]string{gvk.Group, gvk.Version, plural.Resource}, func(s string) bool { return s == "" })) {
			list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		}
	}
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err == nil {
		err = l.List(r.Context(), list, client.MatchingLabelsSelector{Selector: selector})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	list.SetResourceVersion("1000000")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}
