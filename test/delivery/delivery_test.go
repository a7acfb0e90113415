// Package delivery has the manager apply what it publishes to a second API server.
package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// connect gives the manager the workload cluster of p.
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

// connectTo gives the manager a kubeconfig.
func (p publisher) connectTo(kubeconfig []byte) {
	p.T.Helper()
	vocabulary.Create(p.T, shared.Client, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: p.Name},
		},
		Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	})
	cluster := p.Cluster()
	before := client.MergeFrom(cluster.DeepCopy())
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	if err := shared.Client.Status().Patch(p.T.Context(), cluster, before); err != nil {
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

// everything names all objects of all kinds that an API server knows, but for Pods and what it makes for itself, with
// our field manager where it is in one.
func everything(t *testing.T, workload *mgmt.Cluster, remote client.Client) (all []string) {
	t.Helper()
	api, err := discovery.NewDiscoveryClientForConfig(workload.Config())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := api.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, resources := range lists {
		group, err := schema.ParseGroupVersion(resources.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for i := range resources.APIResources {
			resource := &resources.APIResources[i]
			if !slices.Contains(resource.Verbs, "list") || slices.Contains([]string{"Pod", "Event", "Lease", "ComponentStatus"}, resource.Kind) {
				continue
			}
			var list metav1.PartialObjectMetadataList
			list.SetGroupVersionKind(group.WithKind(resource.Kind + "List"))
			if err := remote.List(t.Context(), &list); err != nil {
				t.Fatalf("listing %s: %v", resource.Name, err)
			}
			for _, item := range list.Items {
				name := fmt.Sprintf("%s %s/%s", resource.Kind, item.Namespace, item.Name)
				for _, fields := range item.ManagedFields {
					if fields.Manager == contract.Name {
						name += " of " + fields.Manager
					}
				}
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestOutputs_ReachTheWorkloadCluster applies outputs to another API server, changes them, and removes them.
func TestOutputs_ReachTheWorkloadCluster(t *testing.T) {
	t.Parallel()
	ns, stop := start(t)
	workload := vocabulary.StartCluster(t, mgmt.Options{Workload: true})
	c := newPublisher(t, ns, "prod", "pods,trust=proxy-system,kapp-controller=proxy-system",
		map[string]string{"httpProxy": proxyURL, "trustedCA": pki.Text(t), "noProxy": "192.168.0.0/16"})
	c.Runs("v1.35.4")
	c.Eventually(output.ReasonKubernetesTooOld, "the control plane runs Kubernetes v1.35.4", "the workload cluster does not answer")
	remote := c.connect(workload)
	c.Eventually(output.ReasonKubernetesTooOld, "output trust=proxy-system: the workload cluster has no Namespace proxy-system; create it",
		"output kapp-controller=proxy-system: the workload cluster has no Namespace proxy-system; create it")
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "proxy-system", Name: "http-proxy-ca"}, Data: map[string]string{"a": "b"}}
	vocabulary.Create(t, remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "proxy-system"}})
	for err := remote.Create(t.Context(), foreign.DeepCopy()); err != nil; err = remote.Create(t.Context(), foreign.DeepCopy()) {
		// The manager was first.
		if err := client.IgnoreNotFound(remote.Delete(t.Context(), foreign.DeepCopy())); err != nil {
			t.Fatal(err)
		}
	}
	foreign = vocabulary.Fetch(t, remote, "proxy-system", "http-proxy-ca", foreign)
	before := everything(t, workload, remote)
	c.Runs("v1.36.3")
	c.Eventually(contract.ReasonNameTaken, "output trust=proxy-system: ConfigMap proxy-system/http-proxy-ca of the workload cluster exists and was not written by")
	if got := vocabulary.Fetch(t, remote, "proxy-system", "http-proxy-ca", &corev1.ConfigMap{}); got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the ConfigMap of another is %v", got)
	}
	if err := remote.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	before = slices.DeleteFunc(before, func(name string) bool {
		return name == "ConfigMap proxy-system/http-proxy-ca" || strings.HasSuffix(name, " of "+contract.Name) // already applied
	})
	c.Publish("pods, trust=proxy-system, kapp-controller=proxy-system")
	c.Eventually(output.ReasonPublished, "pods, trust=proxy-system, kapp-controller=proxy-system")
	ca := vocabulary.Fetch(t, remote, "proxy-system", "http-proxy-ca", &corev1.ConfigMap{})
	kapp := vocabulary.Fetch(t, remote, "proxy-system", "kapp-controller-config", &corev1.Secret{})
	if !strings.Contains(ca.Data["ca.crt"], "BEGIN CERTIFICATE") || string(kapp.Data["httpsProxy"]) != proxyURL ||
		ca.Labels[contract.LabelGenerated] != "prod" {
		t.Errorf("got %q, labels %v, and %q", ca.Data, ca.Labels, kapp.Data)
	}
	for _, entry := range kapp.ManagedFields { // an apply removes no other fields
		if entry.Manager != contract.Name || entry.Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("fields of the Secret belong to %s of %s", entry.Operation, entry.Manager)
		}
	}
	pods := 0
	eventually(t, "the policy in the workload cluster", func() string { // it takes a moment to be in effect
		pods++
		if env := podEnv(t, remote, fmt.Sprintf("pod-%d", pods)); !strings.Contains(env, proxyURL) {
			return "a Pod has " + env
		}
		return ""
	})
	c.isCorrected(remote, stop)
	c.changes(workload, remote)
	c.Edit(func(cluster *clusterv1.Cluster) { delete(cluster.Labels, contract.LabelEnabled) })
	c.Eventually("")
	if diff := cmp.Diff(before, everything(t, workload, remote)); diff != "" {
		t.Errorf("the workload cluster (-before +after):\n%s", diff)
	}
	if annotations := c.Cluster().Annotations; annotations[output.AnnotationApplied] != "" {
		t.Errorf("annotations %v", annotations)
	}
}

// isCorrected has somebody edit one object, delete another and make a third one immutable. A manager that has just
// started compares all of them.
func (p publisher) isCorrected(remote client.Client, stop func()) {
	t := p.T
	t.Helper()
	stop()
	values := vocabulary.Fetch(t, remote, "kube-system", "http-proxy-env", &corev1.ConfigMap{})
	vocabulary.Change(t, remote, values, func(c *corev1.ConfigMap) { c.Data["HTTP_PROXY"], c.Immutable = "http://evil.example.com", new(true) })
	ca := vocabulary.Fetch(t, remote, "proxy-system", "http-proxy-ca", &corev1.ConfigMap{})
	vocabulary.Change(t, remote, ca, func(c *corev1.ConfigMap) { c.Data["ca.crt"], c.Data["mine"] = "edited", "stays" })
	if err := remote.Delete(t.Context(), vocabulary.Fetch(t, remote, "proxy-system", "kapp-controller-config", &corev1.Secret{})); err != nil {
		t.Fatal(err)
	}
	manage(t, p.Namespace)
	eventually(t, "what somebody changed in the workload cluster", func() string {
		var env, bundle corev1.ConfigMap
		var kapp corev1.Secret
		for object, key := range map[client.Object]client.ObjectKey{
			&env:    {Namespace: "kube-system", Name: "http-proxy-env"},
			&bundle: {Namespace: "proxy-system", Name: "http-proxy-ca"},
			&kapp:   {Namespace: "proxy-system", Name: "kapp-controller-config"},
		} {
			if err := remote.Get(t.Context(), key, object); err != nil {
				return err.Error()
			}
		}
		if env.Data["HTTP_PROXY"] != proxyURL || !strings.Contains(bundle.Data["ca.crt"], "BEGIN") || bundle.Data["mine"] != "stays" {
			return fmt.Sprint(env.Data, bundle.Data)
		}
		return ""
	})
}

// changes changes the proxy, also while the workload cluster is away, and stops asking for two of the outputs.
func (p publisher) changes(workload *mgmt.Cluster, remote client.Client) {
	t := p.T
	t.Helper()
	values := func() map[string]string {
		return vocabulary.Fetch(t, remote, "kube-system", "http-proxy-env", &corev1.ConfigMap{}).Data
	}
	use := func(entry string) {
		p.UseProxy(map[string]string{"httpProxy": otherProxyURL, "noProxy": "192.168.0.0/16\n" + entry})
	}
	use("there.example.com")
	eventually(t, "the changed proxy in the workload cluster", func() string {
		if got := values()["HTTP_PROXY"]; got != otherProxyURL {
			return got
		}
		return ""
	})
	p.Eventually(output.ReasonPublished, "output trust=proxy-system: Secret "+p.Namespace+"/prod-http-proxy has no key trustedCA")
	if err := workload.KillServer(); err != nil {
		t.Fatal(err)
	}
	use("away.example.com")
	p.Eventually(output.ReasonDeliveryFailed, "the workload cluster does not answer with the kubeconfig of Secret "+p.Namespace+"/prod-kubeconfig")
	if err := workload.StartServer(); err != nil {
		t.Fatal(err)
	}
	use("back.example.com") // it would be asked again after half a minute
	p.Eventually(output.ReasonPublished, "pods")
	eventually(t, "the last NO_PROXY in the workload cluster", func() string {
		if got := values()["NO_PROXY"]; !strings.Contains(got, "back.example.com") {
			return got
		}
		return ""
	})
	p.Publish("kapp-controller=proxy-system")
	p.Publishes("kapp-controller=proxy-system")
	if env := podEnv(t, remote, "after"); env != "[]" {
		t.Errorf("a Pod has %s", env)
	}
}
