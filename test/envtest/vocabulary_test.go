package envtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

const (
	proxyURL               = "http://proxy.example.com:3128"
	defaultSecretNamespace = "default"
	defaultSecretName      = "installation-proxy"
	noCondition            = vocabulary.NoCondition
	// patience is for how long the manager may write nothing before a wait is given up.
	patience = time.Minute
)

// namespace makes a namespace of the test's own and returns its name.
func namespace(t *testing.T) string {
	t.Helper()
	if shared == nil {
		t.Skipf("%s is not set; make test-envtest sets it", mgmt.AssetsVariable)
	}
	t.Parallel()
	return vocabulary.Namespace(t, shared.client, "test-")
}

// mayUseDefault lets the Clusters of a namespace use the installation-wide Secret, or no longer.
func mayUseDefault(t *testing.T, ns string, may bool) {
	t.Helper()
	change(t, fetch(t, "", ns, &corev1.Namespace{}), func(n *corev1.Namespace) {
		delete(n.Labels, contract.LabelDefaultProxy)
		if may {
			n.Labels[contract.LabelDefaultProxy] = contract.DefaultProxyAllowed
		}
	})
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	vocabulary.Create(t, shared.client, objects...)
}

// fetch reads the object of a name into a new object.
func fetch[T client.Object](t *testing.T, ns, name string, object T) T {
	t.Helper()
	return vocabulary.Fetch(t, shared.client, ns, name, object)
}

// change edits an object until the API server takes it.
func change[T client.Object](t *testing.T, object T, edit func(T)) {
	t.Helper()
	vocabulary.Change(t, shared.client, object, edit)
}

// eventually waits until problem returns "". It fails if the manager writes nothing more, for any test, for a while.
func eventually(t *testing.T, what string, problem func() string) {
	t.Helper()
	within(t, patience, what, problem)
}

// within is eventually for what the manager may do after a pause of its own.
func within(t *testing.T, patience time.Duration, what string, problem func() string) {
	t.Helper()
	wait.Rule{Still: patience, Poll: 250 * time.Millisecond, Moved: shared.requests.writes}.Until(t, what, problem)
}

// classic is a Cluster with all that clusterctl templates bring.
type classic struct {
	t        *testing.T
	ns, name string
}

// newCluster creates a labelled classic Cluster with one control plane, one MachineDeployment and one MachinePool.
// The options change the objects before they are created.
func newCluster(t *testing.T, ns, name string, options ...func(client.Object)) classic {
	t.Helper()
	c := classic{t: t, ns: ns, name: name}
	for _, object := range c.objects() {
		for _, option := range options {
			option(object)
		}
		create(t, object)
	}
	return c
}

// oneCluster creates Cluster one and its proxy Secret in a namespace of its own.
func oneCluster(t *testing.T, options ...func(client.Object)) classic {
	t.Helper()
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	return newCluster(t, ns, "one", options...)
}

func (c classic) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.ns, Name: name}
}

func (c classic) objects() []client.Object {
	o := vocabulary.NewClassic(c.ns, c.name, c.name)
	o.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	o.ControlPlane.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{
		Path: "/etc/motd", Content: "hello",
		Permissions: "0644",
	}}
	o.ControlPlane.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"echo own"}
	return []client.Object{o.Cluster, o.ControlPlane, c.infrastructure(), o.Template, o.Deployment, o.Config, o.Pool}
}

// infrastructure is the machine template that all Machines of the Cluster are made of.
func (c classic) infrastructure() client.Object { return vocabulary.MachineTemplate(c.ns, c.name) }

func (c classic) machine(kind, bootstrap string) clusterv1.MachineSpec {
	return vocabulary.MachineSpec(c.name, c.name, kind, bootstrap)
}

func (c classic) cluster() *clusterv1.Cluster {
	return fetch(c.t, c.ns, c.name, &clusterv1.Cluster{})
}

func (c classic) controlPlane() *controlplanev1.KubeadmControlPlane {
	return fetch(c.t, c.ns, c.name, &controlplanev1.KubeadmControlPlane{})
}

func (c classic) template() *bootstrapv1.KubeadmConfigTemplate {
	return fetch(c.t, c.ns, c.name+"-md", &bootstrapv1.KubeadmConfigTemplate{})
}

func (c classic) config() *bootstrapv1.KubeadmConfig {
	return fetch(c.t, c.ns, c.name+"-mp", &bootstrapv1.KubeadmConfig{})
}

// everyObject names the bootstrap objects of a classic Cluster: those of its control plane, its MachineDeployment and
// its MachinePool. noObject is none of them.
var everyObject, noObject = []string{"control plane", "template", "KubeadmConfig"}, []string(nil)

// spec returns the bootstrap spec of one of everyObject.
func (c classic) spec(name string) patch.Spec {
	c.t.Helper()
	switch name {
	case "control plane":
		return api.Spec(&c.controlPlane().Spec.KubeadmConfigSpec)
	case "template":
		return api.Spec(&c.template().Spec.Template.Spec)
	case "KubeadmConfig":
		return api.Spec(&c.config().Spec)
	default:
		c.t.Fatalf("%q is none of %q", name, everyObject)
		return patch.Spec{}
	}
}

// edit changes the Cluster.
func (c classic) edit(edit func(*clusterv1.Cluster)) {
	c.t.Helper()
	change(c.t, c.cluster(), edit)
}

func (c classic) condition() metav1.Condition { return vocabulary.Condition(c.cluster()) }

// eventuallyReports waits until the manager has nothing more to do and the condition has a reason, and its message
// some parts.
func (c classic) eventuallyReports(reason string, parts ...string) {
	c.t.Helper()
	eventually(c.t, "condition of Cluster "+c.name, func() string {
		before := len(shared.requests.in(c.ns))
		condition := c.condition()
		if condition.Reason != reason {
			return fmt.Sprintf("reason %s, want %s; message: %s", condition.Reason, reason, condition.Message)
		}
		for _, part := range parts {
			if !strings.Contains(condition.Message, part) {
				return fmt.Sprintf("message %q lacks %q", condition.Message, part)
			}
		}
		if reason != noCondition && condition.ObservedGeneration != c.cluster().Generation {
			return "the condition is of an earlier generation"
		}
		time.Sleep(300 * time.Millisecond)
		if c.condition() != condition || len(shared.requests.in(c.ns)) != before {
			return "the manager is still at work"
		}
		return ""
	})
}

// eventuallyAsBefore waits until the product has cleaned up the Cluster, and fails if it left anything behind. before
// is a snapshot.
func (c classic) eventuallyAsBefore(t *testing.T, before string) {
	t.Helper()
	c.eventuallyReports(noCondition)
	if diff := cmp.Diff(before, c.snapshot()); diff != "" {
		t.Errorf("after removal (-before +after):\n%s", diff)
	}
	if c.generated() != nil {
		t.Error("the generated Secret is still there")
	}
}

// secret returns the data of a Secret, or nil.
func (c classic) secret(name string) map[string][]byte {
	c.t.Helper()
	var secret corev1.Secret
	err := shared.client.Get(c.t.Context(), client.ObjectKey{Namespace: c.ns, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return secret.Data
}

func (c classic) generated() map[string][]byte {
	c.t.Helper()
	return c.secret(c.name + "-proxy-files")
}

// eventuallyHas waits for a line in the generated env file.
func (c classic) eventuallyHas(line string) {
	c.t.Helper()
	eventually(c.t, "generated Secret of "+c.name, func() string {
		env := string(c.generated()[contract.KeyProxyEnv])
		if !slices.Contains(strings.Split(env, "\n"), line) {
			return fmt.Sprintf("no line %s in\n%s", line, env)
		}
		return ""
	})
}

// proxySecret creates a proxy Secret with the label.
func proxySecret(t *testing.T, ns, name string, data map[string]string) *corev1.Secret {
	t.Helper()
	secret := vocabulary.ProxySecret(ns, name, data)
	create(t, secret)
	return secret
}

// snapshot is what a user sees of the bootstrap objects: everything but status and bookkeeping of the API server.
func (c classic) snapshot() string {
	c.t.Helper()
	var b strings.Builder
	for _, object := range []client.Object{c.controlPlane(), c.template(), c.config()} {
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		object.SetGeneration(0)
		text, err := json.MarshalIndent(object, "", "  ")
		if err != nil {
			c.t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

func (c classic) isPatched(name string) bool {
	c.t.Helper()
	return patch.IsPatched(c.spec(name))
}

// patchedOtherThan returns a problem unless the proxy is in these bootstrap objects and in no other.
func (c classic) patchedOtherThan(want ...string) string {
	c.t.Helper()
	patched := slices.DeleteFunc(slices.Clone(everyObject), func(name string) bool { return !c.isPatched(name) })
	if slices.Equal(patched, want) {
		return ""
	}
	return fmt.Sprintf("the proxy is in %q of Cluster %s, want %q", patched, c.name, want)
}

// wantPatched fails unless the proxy is in these bootstrap objects and in no other.
func (c classic) wantPatched(t *testing.T, want ...string) {
	t.Helper()
	if problem := c.patchedOtherThan(want...); problem != "" {
		t.Error(problem)
	}
}

// eventuallyPatched waits until the proxy is in every bootstrap object.
func (c classic) eventuallyPatched() {
	c.t.Helper()
	eventually(c.t, "the proxy", func() string { return c.patchedOtherThan(everyObject...) })
}

// eventuallyConfigured waits until the Cluster is configured, and every object patched. Without webhooks, a Cluster reports
// Configured before the controller has seen its pools.
func (c classic) eventuallyConfigured(parts ...string) {
	c.t.Helper()
	c.eventuallyReports(contract.ReasonConfigured, parts...)
	c.eventuallyPatched()
}

// generations are those of the bootstrap objects.
func (c classic) generations() map[string]int64 {
	c.t.Helper()
	return map[string]int64{
		"control plane": c.controlPlane().Generation, "template": c.template().Generation, "KubeadmConfig": c.config().Generation,
	}
}

// staysQuiet fails if the manager sends a request about the namespace during two resyncs. What the last pass reports may
// come before them, and be sent again where the cache was behind.
func staysQuiet(t *testing.T, ns string) {
	t.Helper()
	time.Sleep(resync / 4) // a request is logged after its answer, which a test may have seen
	twoResyncs := func() []string {
		before := len(shared.requests.in(ns))
		time.Sleep(2*resync + resync/2)
		return shared.requests.in(ns)[before:]
	}
	requests := twoResyncs()
	reports := func(request string) bool {
		return strings.HasPrefix(request, http.MethodPatch) && strings.Contains(request, "/clusters/")
	}
	if len(requests) > 0 && !slices.ContainsFunc(requests, func(r string) bool { return !reports(r) }) {
		requests = twoResyncs()
	}
	if len(requests) > 0 {
		t.Errorf("%d requests over two resyncs: %s", len(requests), strings.Join(requests, ", "))
	}
}

// staysQuietButFor fails if the manager sends a request about the namespace during two resyncs other than those for
// resources of the given name.
func staysQuietButFor(t *testing.T, ns string, resources ...string) {
	t.Helper()
	before := len(shared.requests.in(ns))
	time.Sleep(2*resync + resync/2)
	for _, request := range shared.requests.in(ns)[before:] {
		if !slices.ContainsFunc(resources, func(r string) bool { return strings.Contains(request, "/"+r+"/") }) {
			t.Errorf("unexpected request %s", request)
		}
	}
}

// staysAsIs fails if the object changes within a second.
func (c classic) staysAsIs(before string) {
	c.t.Helper()
	for range 10 {
		time.Sleep(100 * time.Millisecond)
		if after := c.snapshot(); after != before {
			c.t.Fatalf("bootstrap objects changed from\n%s\nto\n%s", before, after)
		}
	}
}
