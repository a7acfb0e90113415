package faults

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	proxyURL      = "http://proxy.example.com:3128"
	otherProxyURL = "http://proxy-2.example.com:3128"
	noCondition   = vocabulary.NoCondition
	// infrastructureName is the machine template of all Clusters of a namespace.
	infrastructureName = "machines"
)

// fleet is the Clusters of a namespace, each with all that clusterctl templates bring.
type fleet struct {
	t     *testing.T
	ns    string
	names []string
	// originals are the objects as the API server stored them, or would have, without the product.
	originals objects
	// poolless is a fleet without MachinePools.
	poolless bool
	// proxy is host and port of the proxy.
	proxy string
}

// newFleet prepares Clusters, without the label, and creates what they share: machines to be made of, and the proxy
// Secret. Its objects are still to be created.
func newFleet(t *testing.T, size int) *fleet {
	t.Helper()
	f := &fleet{t: t, ns: namespace(t), originals: objects{}, proxy: hostOf(proxyURL)}
	create(t, vocabulary.MachineTemplate(f.ns, infrastructureName), f.proxySecret(proxyURL))
	for i := range size {
		f.names = append(f.names, fmt.Sprintf("c%03d", i))
	}
	return f
}

// proxySecret is the proxy Secret of all Clusters of the namespace.
func (f *fleet) proxySecret(url string) *corev1.Secret {
	return vocabulary.ProxySecret(f.ns, contract.DefaultSecretName, map[string]string{
		"httpProxy": url, "username": "user", "password": `p%@"'$\#{{`, "noProxy": "own.example.com,10.1.0.0/16",
	})
}

// useProxy changes the proxy Secret to one without credentials.
func (f *fleet) useProxy(url string) {
	f.t.Helper()
	f.proxy = hostOf(url)
	text := fmt.Sprintf(`{"data":{"username":null,"password":null},"stringData":{"httpProxy":%q}}`, url)
	f.merge(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: contract.DefaultSecretName}}, text)
}

// hostOf returns host and port of the URL of a proxy.
func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }

// create creates the objects of the Clusters, several Clusters at once, and remembers what they are like without the
// product.
func (f *fleet) create(options ...func(client.Object)) {
	f.t.Helper()
	f.remember(options...)
	f.plant(options...)
}

// plant creates the recorded objects.
func (f *fleet) plant(options ...func(client.Object)) {
	f.t.Helper()
	f.each(func(name string) error {
		for _, object := range f.objects(name, options...) {
			if err := shared.client.Create(f.t.Context(), object); err != nil {
				return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
			}
		}
		return nil
	})
}

// remember asks the API server what the objects would be like if they were created now.
func (f *fleet) remember(options ...func(client.Object)) {
	f.t.Helper()
	var mu sync.Mutex
	f.each(func(name string) error {
		for _, object := range f.objects(name, options...) {
			if err := shared.client.Create(f.t.Context(), object, client.DryRunAll); err != nil {
				return fmt.Errorf("asking for %T %s: %w", object, object.GetName(), err)
			}
			kind, err := shared.client.GroupVersionKindFor(object)
			if err != nil {
				return err
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			mu.Lock()
			f.originals.add(f.t, object)
			mu.Unlock()
		}
		return nil
	})
}

// each calls do for every Cluster, several at once, and fails if one of the calls fails.
func (f *fleet) each(do func(name string) error) {
	f.t.Helper()
	var wait sync.WaitGroup
	names := make(chan string)
	for range 8 {
		wait.Go(func() {
			for name := range names {
				if err := do(name); err != nil {
					f.t.Error(err)
				}
			}
		})
	}
	for _, name := range f.names {
		names <- name
	}
	close(names)
	wait.Wait()
	if f.t.Failed() {
		f.t.FailNow()
	}
}

func (f *fleet) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.ns, Name: name}
}

func (f *fleet) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: f.ns, Name: name}
}

// objects are those of one Cluster, with values that do not survive careless handling.
func (f *fleet) objects(name string, options ...func(client.Object)) []client.Object {
	const rude = "100% {{ \"own\" }} 'it' \\ $HOME `id`\n\tsecond line"
	files := []bootstrapv1.File{
		{Path: "/etc/motd", Content: rude, Permissions: "0644"},
		{Path: "/etc/äö", Content: name, Owner: "root:root"},
	}

	o := vocabulary.NewClassic(f.ns, name, infrastructureName)
	o.ControlPlane.Annotations = map[string]string{"example.com/own": rude}
	o.ControlPlane.Spec.KubeadmConfigSpec.Files = files
	o.ControlPlane.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"echo '" + rude + "'", "echo second"}
	o.Config.Spec.Files = files
	o.Config.Spec.PreKubeadmCommands = []string{"echo own"}

	// Pools come before their bootstrap objects, so that admission finds their Clusters.
	list := []client.Object{o.Cluster, o.ControlPlane, o.Deployment, o.Template, o.Pool, o.Config}
	if f.poolless {
		list = list[:4]
	}
	for _, object := range list {
		for _, option := range options {
			option(object)
		}
	}
	return list
}

// enabled is an option of create: the Clusters are labelled from the beginning.
func enabled(object client.Object) {
	if cluster, ok := object.(*clusterv1.Cluster); ok {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	}
}

// merge changes an object as kubectl patch does.
func (f *fleet) merge(object client.Object, text string) {
	f.t.Helper()
	if err := shared.client.Patch(f.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		f.t.Fatalf("changing %T %s: %v", object, object.GetName(), err)
	}
}

// labelPatch is what a user does to a Cluster.
func labelPatch(on bool) string {
	if on {
		return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, contract.LabelEnabled, contract.LabelEnabledValue)
	}
	return fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, contract.LabelEnabled)
}

// label switches all Clusters on or off.
func (f *fleet) label(on bool) {
	f.t.Helper()
	f.each(func(name string) error {
		return shared.client.Patch(f.t.Context(), &clusterv1.Cluster{ObjectMeta: f.meta(name)},
			client.RawPatch(types.MergePatchType, []byte(labelPatch(on))))
	})
}

// conditions returns the condition of every Cluster.
func (f *fleet) conditions() map[string]metav1.Condition {
	f.t.Helper()
	var clusters clusterv1.ClusterList
	if err := shared.client.List(f.t.Context(), &clusters, client.InNamespace(f.ns)); err != nil {
		f.t.Fatal(err)
	}
	found := map[string]metav1.Condition{}
	for i := range clusters.Items {
		found[clusters.Items[i].Name] = vocabulary.Condition(&clusters.Items[i])
	}
	return found
}

// eventuallyReports waits until the conditions of all Clusters have a reason.
func (f *fleet) eventuallyReports(reason string) {
	f.t.Helper()
	eventually(f.t, "conditions", func() string {
		for name, condition := range f.conditions() {
			if condition.Reason != reason {
				return fmt.Sprintf("Cluster %s has reason %s, want %s; message: %s", name, condition.Reason, reason,
					condition.Message)
			}
		}
		return ""
	})
}
