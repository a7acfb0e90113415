package cli_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
	testapi "github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// failing is a management cluster in memory, with the objects of Cluster prod.
type failing struct {
	vocabulary.Classic

	t      *testing.T
	secret *corev1.Secret // the proxy Secret
	// more are further objects, absent some that do not exist.
	more, absent []client.Object
	client       client.Client
	reconciler   reconcile.Reconciler
}

const failingTeam = "team-a"

func newFailing(t *testing.T) *failing {
	t.Helper()
	w := &failing{t: t, Classic: vocabulary.NewClassic(failingTeam, "prod", "linux")}
	w.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	w.secret = vocabulary.ProxySecret(failingTeam, "http-proxy", nil)
	w.secret.Data = map[string][]byte{"httpProxy": []byte("http://proxy.example.com:3128")}
	return w
}

// start stores the objects, and starts a controller.
func (w *failing) start() {
	w.t.Helper()
	scheme, err := testapi.NewScheme()
	w.must(err)
	building := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.Cluster{})
	for _, object := range append(w.more, w.Cluster, w.ControlPlane, w.Deployment, w.Template, w.Pool, w.Config, w.secret) {
		if !slices.Contains(w.absent, object) {
			building.WithObjects(object)
		}
	}
	w.must(world.SetupIndexes(w.t.Context(), failingIndexes{building}))
	w.client = building.Build()
	shown, err := testapi.NewClient(w.client)
	w.must(err)
	now := func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }
	made, err := controller.New(controller.Config{
		Client: shown, Live: shown,
		Memory: &world.Memory{
			Cached: shown, Live: shown, ProxySecrets: world.ProxySecrets{Reader: shown}, Mapper: noInfrastructure{}, Now: now,
		},
		Admission: true, Recorder: events.NewFakeRecorder(1000), Now: now,
	})
	w.must(err)
	w.reconciler = reconcile.AsReconciler(shown, made)
}

func (w *failing) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *failing) pass() {
	w.t.Helper()
	// A manager or a hook server that another test runs sets the process's logger to a buffer of its own.
	ctx := log.IntoContext(w.t.Context(), logr.Discard())
	_, err := w.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.Cluster)})
	w.must(err)
}

// change changes a stored object.
func (w *failing) change(object client.Object, edit func()) {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object))
	edit()
	w.must(w.client.Update(w.t.Context(), object))
}

// failures produce what the first sections of docs/troubleshooting.md are about, by the name of the section.
func failures() map[string]func(w *failing) {
	once := func(edit func(w *failing)) func(*failing) {
		return func(w *failing) {
			edit(w)
			w.start()
			w.pass()
		}
	}
	return map[string]func(w *failing){
		"Configuring": once(func(w *failing) { // Cluster API has not confirmed the pause
			w.ControlPlane.Status.Conditions = []metav1.Condition{{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse}}
		}),
		"SettingsNotFound": once(func(w *failing) { w.absent = []client.Object{w.secret} }),
		"InvalidSettings":  once(func(w *failing) { w.secret.Data["httpProxy"] = []byte("http://u:s3cr/et@proxy.example.com") }),
		"NameTaken": once(func(w *failing) {
			w.more = []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: failingTeam, Name: intent.GeneratedSecretName("prod"),
			}}}
		}),
		"ConflictingFile": once(func(w *failing) {
			w.ControlPlane.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{
				Path: "/etc/systemd/system/containerd.service.d/http-proxy.conf", Content: "[Service]",
			}}
		}),
		"SharedTemplate": once(func(w *failing) {
			second := w.Deployment.DeepCopy()
			second.Name, second.Annotations = "prod-edge", map[string]string{contract.AnnotationSecret: "edge"}
			w.more = []client.Object{second}
		}),
		"Contested": func(w *failing) {
			own := w.ControlPlane.Spec.KubeadmConfigSpec.DeepCopy()
			w.start()
			for range 4 {
				w.pass()
				w.change(w.ControlPlane, func() { w.ControlPlane.Spec.KubeadmConfigSpec = *own.DeepCopy() })
			}
			w.pass()
		},
		"TemplateNotSupported": once(func(w *failing) {
			w.Deployment.Spec.Template.Spec.Bootstrap.ConfigRef = vocabulary.Ref("bootstrap.cluster.x-k8s.io", "RKE2ConfigTemplate", "prod")
		}),
		"WaitingForRollout": once(func(w *failing) { w.ControlPlane.Status.Replicas = new(int32(1)) }),
		"RemovalWaitingForRollout": func(w *failing) {
			w.start()
			w.pass()
			w.change(w.ControlPlane, func() { w.ControlPlane.Status.Replicas = new(int32(1)) })
			w.change(w.Cluster, func() { w.Cluster.Labels = nil })
			w.pass()
		},
		"WaitingForControlPlaneEndpoint": once(func(w *failing) { w.Cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{} }),
		"WaitingForObjects":              once(func(w *failing) { w.absent = []client.Object{w.ControlPlane} }),
	}
}

// TestCheck_NamesTheFirstFailuresOfTheTroubleshootingPage lets the controller meet each of them, and asks check.
func TestCheck_NamesTheFirstFailuresOfTheTroubleshootingPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var first []string
	for _, heading := range regexp.MustCompile("(?m)^### `([^`]+)`$").FindAllStringSubmatch(string(page), -1) {
		if name := heading[1]; len(first) < 12 && contract.ReasonOf(name).Status != string(metav1.ConditionTrue) {
			first = append(first, name)
		}
	}
	produce := failures()
	if len(first) != len(produce) {
		t.Errorf("%d failures are produced, and the page begins with %q", len(produce), first)
	}
	none := newFailing(t)
	none.start()
	none.pass()
	if got := none.check("cluster-condition"); got.Status != check.OK {
		t.Fatalf("nothing is wrong, and check says %+v", got)
	}
	unlabelled := newFailing(t)
	unlabelled.Cluster.Labels = nil
	unlabelled.start()
	unlabelled.pass()
	if got := unlabelled.check("cluster-condition"); got.Status != check.Skipped {
		t.Errorf("the Cluster never had the label, and check says %+v", got)
	}
	if status, _, stderr := unlabelled.command("status"); status != 1 || !strings.Contains(stderr, "no labelled Cluster prod") {
		t.Errorf("the Cluster never had the label, and status exits with %d: %s", status, stderr)
	}
	for _, name := range first {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if produce[name] == nil {
				t.Fatal("the page has it among the first, and nothing produces it")
			}
			w := newFailing(t)
			produce[name](w)
			got := w.check("cluster-condition")
			if got.Status != check.Failed && got.Status != check.Warning || !strings.HasPrefix(got.Message, name+": ") ||
				got.Do == "" || !strings.HasSuffix(got.Link, "/docs/troubleshooting.md#"+strings.ToLower(name)) {
				t.Errorf("check says %+v", got)
			}
			status, stdout, stderr := w.command("status")
			if status != 0 || !strings.Contains(stdout, "  "+name+"  ") || !strings.Contains(stderr, "see "+got.Link+"\n") {
				t.Errorf("status exits with %d: %s%s", status, stderr, stdout)
			}
		})
	}
}

// command runs a command about the Cluster.
func (w *failing) command(name string, args ...string) (status int, stdout, stderr string) {
	w.t.Helper()
	server := httptest.NewTLSServer(w)
	w.t.Cleanup(server.Close)
	kubeconfig := (&api{Server: server}).kubeconfig(w.t)
	return run(w.t, "", append([]string{name, "--kubeconfig", kubeconfig, "--cluster", "prod"}, args...)...)
}

// check runs the command and returns the result of one check.
func (w *failing) check(name string) check.Result {
	w.t.Helper()
	_, stdout, stderr := w.command("check", "-o", "json")
	var report check.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		w.t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	for _, group := range report.Groups {
		for _, result := range group.Checks {
			if string(result.Check) == name && group.Name == "Cluster "+failingTeam+"/prod" {
				return result
			}
		}
	}
	w.t.Fatalf("no check %s in %s", name, stdout)
	return check.Result{}
}

// ServeHTTP answers reads of a namespace: .../namespaces/NAMESPACE/RESOURCE, and a name for one object.
func (w *failing) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	version, of, found := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(of, "/")
	kind := map[string]string{"clusters": "Cluster", "secrets": "Secret"}[parts[min(1, len(parts)-1)]]
	if !found || kind == "" || r.Method != http.MethodGet {
		http.NotFound(to, r)
		return
	}
	group, err := schema.ParseGroupVersion(strings.TrimPrefix(strings.TrimPrefix(version, "/apis/"), "/api/"))
	var answer any
	if len(parts) > 2 { //nolint:mnd // a name
		one := &unstructured.Unstructured{}
		one.SetGroupVersionKind(group.WithKind(kind))
		if err == nil {
			err = w.client.Get(r.Context(), client.ObjectKey{Namespace: parts[0], Name: parts[2]}, one)
		}
		answer = one
	} else {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(group.WithKind(kind + "List"))
		selector, wrong := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err == nil && wrong == nil {
			err = w.client.List(r.Context(), list, client.InNamespace(parts[0]), client.MatchingLabelsSelector{Selector: selector})
		}
		answer = list
	}
	if err != nil {
		http.NotFound(to, r)
		return
	}
	to.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(to).Encode(answer)
}

// failingIndexes have the fake client index as a cache does.
type failingIndexes struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i failingIndexes) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	scheme, err := testapi.NewScheme()
	if err != nil {
		return err
	}
	shown, err := testapi.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build())
	if err != nil {
		return err
	}
	object, values, err = shown.Index(object, values)
	i.WithIndex(object, field, values)
	return err
}

// noInfrastructure knows no kind of infrastructure.
type noInfrastructure struct{ meta.RESTMapper }

func (noInfrastructure) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}
