// Package delivery has Cluster API's own controller of ClusterResourceSets deliver what the manager publishes.
package delivery

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourceset"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// deliverer runs Cluster API's own controller of ClusterResourceSets for a namespace.
func deliverer(t *testing.T, ns string) {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	mgr, err := ctrl.NewManager(shared.cluster.Config(), ctrl.Options{
		Scheme: shared.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}},
		Controller: config.Controller{SkipNameValidation: new(true)}, // each test has its own
		// As in Cluster API's manager.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: mgr.GetClient(), Client: clustercache.ClientOptions{UserAgent: "test"},
	}, controller.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultNamespaces: map[string]cache.Config{ns: {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(secrets); err != nil {
		t.Fatal(err)
	}
	if err := (&clusterresourceset.Reconciler{Client: mgr.GetClient(), ClusterCache: clusters}).SetupWithManager(ctx, mgr,
		controller.Options{}, secrets); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Cluster API's controller: %v", err)
		}
	})
}

// connect gives Cluster API the workload cluster of c.
func (p publisher) connect(workload *mgmt.Cluster) client.Client {
	p.T.Helper()
	kubeconfig, err := mgmt.Kubeconfig(workload.Config())
	if err != nil {
		p.T.Fatal(err)
	}
	p.connectTo(kubeconfig)
	remote, err := vocabulary.NewClient(workload.Config())
	if err != nil {
		p.T.Fatal(err)
	}
	return remote
}

// connectTo gives Cluster API a kubeconfig.
func (p publisher) connectTo(kubeconfig []byte) {
	p.T.Helper()
	vocabulary.Create(p.T, shared.client, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: p.Name},
		},
		Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	})
	cluster := p.Cluster()
	before := client.MergeFrom(cluster.DeepCopy())
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	if err := shared.client.Status().Patch(p.T.Context(), cluster, before); err != nil {
		p.T.Fatal(err)
	}
}

// podEnv creates a Pod in the workload cluster and returns the variables of its container.
func podEnv(t *testing.T, remote client.Client, name string) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	vocabulary.Create(t, remote, pod)
	return fmt.Sprint(pod.Spec.Containers[0].Env)
}

// TestOutputs_ReachTheWorkloadCluster has Cluster API's own controller deliver to another API server.
func TestOutputs_ReachTheWorkloadCluster(t *testing.T) {
	ns := start(t)
	workload := vocabulary.StartCluster(t)
	t.Cleanup(func() { // it would wait for the watches of Cluster API
		if err := workload.KillServer(); err != nil {
			t.Error(err)
		}
	})
	deliverer(t, ns)
	c := newPublisher(t, ns, "prod", "pods,trust=proxy-system,kapp-controller=proxy-system",
		map[string]string{"httpProxy": proxyURL, "trustedCA": cabundle.Small(t), "noProxy": "192.168.0.0/16"})
	c.Runs("v1.35.4")
	remote := c.connect(workload)
	// Another ClusterResourceSet on the same Cluster.
	vocabulary.Create(t, shared.client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}, Data: map[string]string{
		"a": "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: proxy-mine\n",
	}}, &addonsv1.ClusterResourceSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"},
		Spec: addonsv1.ClusterResourceSetSpec{
			ClusterSelector: metav1.LabelSelector{MatchLabels: map[string]string{contract.LabelEnabled: "true"}},
			Resources:       []addonsv1.ResourceRef{{Kind: "ConfigMap", Name: "mine"}}, Strategy: "ApplyOnce",
		},
	})
	c.Eventually(contract.ReasonKubernetesTooOld, "the control plane runs Kubernetes v1.35.4",
		"output trust=proxy-system: Cluster API could not apply Secret "+ns+"/prod-proxy-trust: Failed to apply ClusterResourceSet resources")
	vocabulary.Create(t, remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "proxy-system"}})
	c.Runs("v1.36.3")
	c.Eventually(contract.ReasonPublished, "pods, trust=proxy-system, kapp-controller=proxy-system")
	set := vocabulary.Fetch(t, shared.client, ns, "prod-proxy", &addonsv1.ClusterResourceSet{})
	if uid := c.Cluster().UID; len(set.OwnerReferences) != 1 || set.OwnerReferences[0].UID != uid {
		t.Errorf("the ClusterResourceSet is owned by %v, not by the Cluster %s", set.OwnerReferences, uid)
	}
	ca := vocabulary.Fetch(t, remote, "proxy-system", "http-proxy-ca", &corev1.ConfigMap{})
	kapp := vocabulary.Fetch(t, remote, "proxy-system", "kapp-controller-config", &corev1.Secret{})
	if !strings.Contains(ca.Data["ca.crt"], "BEGIN CERTIFICATE") || string(kapp.Data["httpsProxy"]) != proxyURL {
		t.Errorf("got %q and %q", ca.Data, kapp.Data)
	}
	pods := 0
	eventually(t, "the policy in the workload cluster", func() string { // it takes a moment to be in effect
		pods++
		if env := podEnv(t, remote, fmt.Sprintf("pod-%d", pods)); !strings.Contains(env, proxyURL) {
			return "a Pod has " + env
		}
		return ""
	})
	c.changesAndGoes(workload, remote)
}

// changesAndGoes changes the proxy, also while the workload cluster is away, and withdraws everything.
func (p publisher) changesAndGoes(workload *mgmt.Cluster, remote client.Client) {
	t := p.T
	t.Helper()
	data := map[string]string{"httpProxy": otherProxyURL, "noProxy": "192.168.0.0/16"}
	values := func() map[string]string {
		return vocabulary.Fetch(t, remote, "kube-system", "http-proxy-env", &corev1.ConfigMap{}).Data
	}
	p.UseProxy(data)
	eventually(t, "the changed proxy in the workload cluster", func() string {
		if got := values()["HTTP_PROXY"]; got != otherProxyURL {
			return got
		}
		return ""
	})
	p.Eventually(contract.ReasonPublished, "output trust=proxy-system: Secret "+p.Namespace+"/prod-http-proxy has no key trustedCA")
	if err := workload.KillServer(); err != nil {
		t.Fatal(err)
	}
	data["noProxy"] = "192.168.0.0/16\naway.example.com"
	p.UseProxy(data)
	p.Eventually(contract.ReasonDeliveryFailed, "output pods: Cluster API could not apply")
	if err := workload.StartServer(); err != nil {
		t.Fatal(err)
	}
	p.Eventually(contract.ReasonPublished, "pods")
	if got := values()["NO_PROXY"]; !strings.Contains(got, "away.example.com") {
		t.Errorf("NO_PROXY is %s", got)
	}
	p.Publish("kapp-controller=proxy-system")
	p.Publishes("kapp-controller=proxy-system")
	if got := values(); len(got) > 0 || p.Secret("-proxy-pods") != nil || p.Secret("-proxy-trust") != nil {
		t.Errorf("withdrawn values are %q", got)
	}
	if env := podEnv(t, remote, "after"); env != "[]" {
		t.Errorf("a Pod has %s", env)
	}
	p.Edit(func(cluster *clusterv1.Cluster) { delete(cluster.Labels, contract.LabelEnabled) })
	p.Eventually("")
	var left corev1.SecretList
	if err := shared.client.List(t.Context(), &left, client.InNamespace(p.Namespace), client.HasLabels{contract.LabelOutput}); err != nil ||
		len(left.Items) > 0 || p.Cluster().Labels[contract.LabelDeliverTo] != "" {
		t.Errorf("left are %v, %v, and labels %v", left.Items, err, p.Cluster().Labels)
	}
	kapp := vocabulary.Fetch(t, remote, "proxy-system", "kapp-controller-config", &corev1.Secret{})
	if len(kapp.Data["httpsProxy"])+len(kapp.Data["noProxy"]) > 0 {
		t.Errorf("withdrawn settings are %q", kapp.Data)
	}
	var binding addonsv1.ClusterResourceSetBinding
	if err := shared.client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, &binding); err != nil ||
		len(binding.Spec.Bindings) != 1 || binding.Spec.Bindings[0].ClusterResourceSetName != "mine" {
		t.Errorf("binding %v, %v", binding.Spec, err)
	}
}
