package faults

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	proxyURL      = "http://proxy.example.com:3128"
	otherProxyURL = "http://proxy-2.example.com:3128"
	// infrastructureName is the machine template of all Clusters of a namespace.
	infrastructureName = "machines"
	// ownPath is a file of the user's.
	ownPath = "/etc/motd"
)

// rude is a value of the user's that does not survive careless handling.
const rude = "100% {{ \"own\" }} 'it' \\ $HOME `id`\n\tsecond line"

// fleet is the Clusters of a namespace, each with a control plane and a pool.
type fleet struct {
	t     *testing.T
	ns    string
	names []string
	// proxy is host and port of the proxy.
	proxy string
}

// newFleet prepares Clusters and creates what they share: machines to be made of, and the proxy Secret.
func newFleet(t *testing.T, size int) *fleet {
	t.Helper()
	f := &fleet{t: t, ns: namespace(t), proxy: hostOf(proxyURL)}
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
	f.merge(&corev1.Secret{ObjectMeta: f.meta(contract.DefaultSecretName)}, text)
}

// hostOf returns host and port of the URL of a proxy.
func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }

// create creates the objects of the Clusters, several Clusters at once.
func (f *fleet) create(options ...func(*clusterv1.Cluster)) {
	f.t.Helper()
	f.each(func(name string) error {
		for _, object := range f.objects(name, options...) {
			if err := shared.Client.Create(f.t.Context(), object); err != nil {
				return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
			}
		}
		return nil
	})
}

// each calls do for every Cluster, several at once, and fails if one of the calls fails.
func (f *fleet) each(do func(name string) error) {
	f.t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for _, name := range f.names {
		group.Go(func() error { return do(name) })
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.ns, Name: name}
}

// objects are those of one Cluster, with values that do not survive careless handling.
func (f *fleet) objects(name string, options ...func(*clusterv1.Cluster)) []client.Object {
	o := vocabulary.NewClassic(f.ns, name, infrastructureName)
	for _, option := range options {
		option(o.Cluster)
	}
	o.ControlPlane.Annotations = map[string]string{"example.com/own": rude}
	o.ControlPlane.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: ownPath, Content: rude}}
	o.ControlPlane.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"echo '" + rude + "'"}
	// The pool comes before its template, so that admission finds its Cluster.
	return []client.Object{o.Cluster, o.ControlPlane, o.Deployment, o.Template}
}

// enabled is an option of create: the Clusters are labelled from the beginning.
func enabled(cluster *clusterv1.Cluster) {
	cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
}

// merge changes an object as kubectl patch does.
func (f *fleet) merge(object client.Object, text string) {
	f.t.Helper()
	if err := shared.Client.Patch(f.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		f.t.Fatalf("changing %T %s: %v", object, object.GetName(), err)
	}
}

// label gives the label of all Clusters a value, "null" for none, as a user does.
func (f *fleet) label(value string) {
	f.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, contract.LabelEnabled, value)
	f.each(func(name string) error {
		return shared.Client.Patch(f.t.Context(), &clusterv1.Cluster{ObjectMeta: f.meta(name)},
			client.RawPatch(types.MergePatchType, patch))
	})
}
