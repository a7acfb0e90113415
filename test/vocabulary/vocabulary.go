// Package vocabulary holds the words that the tests of several packages share: how they start a management cluster,
// what they create in it, and how they read, change and wait for what is there.
package vocabulary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// NoCondition is the reason that Condition gives to a Cluster without a condition of the product.
const NoCondition = "(no condition)"

// Main runs the tests of a package that share a management cluster, and ends the program if they fail. run is called
// with the cluster and a folder, both of which are gone after it, and returns the status of the tests. auditLog is the
// name of the audit log in that folder, empty for none; see mgmt.Options. Without the programs of a cluster, Main runs
// the tests by themselves, and each of them has to skip.
func Main(m *testing.M, auditLog string,
	run func(ctx context.Context, cluster *mgmt.Cluster, dir string) (int, error),
) {
	status, err := runWith(m, auditLog, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	if status != 0 {
		os.Exit(status) //nolint:forbidigo // the way a TestMain says that it failed
	}
}

func runWith(m *testing.M, auditLog string,
	run func(context.Context, *mgmt.Cluster, string) (int, error),
) (status int, err error) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // there is no test yet to take it from
	defer cancel()
	dir, err := os.MkdirTemp("", "capi-proxy-patcher-tests-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var options mgmt.Options
	if auditLog != "" {
		options.AuditLog = filepath.Join(dir, auditLog)
	}
	cluster, err := mgmt.Start(ctx, options)
	if errors.Is(err, mgmt.ErrNoAssets) {
		return m.Run(), nil
	}
	if err != nil {
		return 1, err
	}
	defer func() {
		cancel()
		err = errors.Join(err, cluster.Stop())
	}()
	return run(ctx, cluster, dir)
}

// StartCluster starts a cluster for one test, which is skipped without the programs.
func StartCluster(t *testing.T, options mgmt.Options) *mgmt.Cluster {
	t.Helper()
	cluster, err := mgmt.Start(t.Context(), options)
	if errors.Is(err, mgmt.ErrNoAssets) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// NewClient returns a client for the kinds of the product without a limit of requests.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme, err := api.NewScheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	return client.New(config, client.Options{Scheme: scheme})
}

// Product is a management cluster with the manifests of the product, and the program.
type Product struct {
	Cluster *mgmt.Cluster
	Client  client.Client // of an administrator: the user
	// Binary is the program, Kubeconfig that of its ServiceAccount.
	Binary, Kubeconfig string
}

// NewProduct builds the program into a folder, installs config/default in a management cluster, and writes the
// kubeconfig into the folder.
func NewProduct(ctx context.Context, cluster *mgmt.Cluster, dir string) (p Product, err error) {
	p = Product{Cluster: cluster, Kubeconfig: filepath.Join(dir, "kubeconfig")}
	if p.Binary, err = mgmt.Build(ctx, "../..", dir); err != nil {
		return p, err
	}
	account, err := cluster.InstallProduct(ctx, "../..")
	if err != nil {
		return p, err
	}
	if err := mgmt.WriteKubeconfig(p.Kubeconfig, account); err != nil {
		return p, err
	}
	p.Client, err = NewClient(cluster.Config())
	return p, err
}

// Namespace creates a namespace for a test and returns its name, which has a prefix.
func Namespace(t *testing.T, c client.Client, prefix string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	Create(t, c, ns)
	return ns.Name
}

// Create creates objects.
func Create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// Fetch reads the object of a name into object and returns it.
func Fetch[T client.Object](t *testing.T, c client.Client, ns, name string, object T) T {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, object); err != nil {
		t.Fatalf("reading %T %s/%s: %v", object, ns, name, err)
	}
	return object
}

// Change edits an object until the API server accepts it.
func Change[T client.Object](t *testing.T, c client.Client, object T, edit func(T)) {
	t.Helper()
	for {
		edit(Fetch(t, c, object.GetNamespace(), object.GetName(), object))
		err := c.Update(t.Context(), object)
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			t.Fatalf("updating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// Condition returns the condition of the product on a Cluster, with the reason NoCondition if there is none.
func Condition(cluster *clusterv1.Cluster) metav1.Condition {
	if condition := meta.FindStatusCondition(cluster.Status.Conditions,
		contract.ConditionProxyConfigured); condition != nil {
		return *condition
	}
	return metav1.Condition{Reason: NoCondition}
}

// Generations returns the generations of objects, which grow with every change of a spec, by their types and names.
func Generations(objects ...client.Object) map[string]int64 {
	found := map[string]int64{}
	for _, o := range objects {
		found[fmt.Sprintf("%T %s", o, o.GetName())] = o.GetGeneration()
	}
	return found
}

// ProxySecret returns a Secret with the label of proxy Secrets.
func ProxySecret(ns, name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{contract.LabelProxySecret: ""}},
		StringData: data,
	}
}

// FreeAddress returns an address of loopback at which nobody listens.
func FreeAddress(t *testing.T) string {
	t.Helper()
	address, err := ports.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// ProxyVariables returns the variables of an environment that kubeadm would copy: those that end in _proxy, in any
// spelling.
func ProxyVariables(environ map[string]string) map[string]string {
	found := map[string]string{}
	for name, value := range environ {
		if strings.HasSuffix(strings.ToLower(name), "_proxy") {
			found[name] = value
		}
	}
	return found
}

// Environment returns the six variables of a proxy, in both spellings.
func Environment(httpProxy, httpsProxy, noProxy string) map[string]string {
	values := map[string]string{}
	for name, value := range map[string]string{"HTTP_PROXY": httpProxy, "HTTPS_PROXY": httpsProxy, "NO_PROXY": noProxy} {
		values[name], values[strings.ToLower(name)] = value, value
	}
	return values
}

// LineWith returns the first line of a text that contains part, quoted and cut off after 1,000 bytes, or "".
func LineWith(text, part string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, part) {
			return fmt.Sprintf("%.1000q", line)
		}
	}
	return ""
}
