package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/publisher"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const team = "team"

// server is an API server with Cluster prod, whose proxy Secret is http-proxy, and a publisher.
type server struct {
	t         *testing.T
	stored    client.Client
	publisher *publisher.Controller
	shown     *api.Client
	// writes are those since the last pass, refusals their errors.
	writes   []string
	refusals map[string]error
	// answers reports whether the workload cluster does, which then has nothing.
	answers bool
	// hidden is a Secret that is in no cache.
	hidden string
	absent *utilcache.Expiring
	// requests are the reads that no cache answered since the last pass.
	requests int
}

// indexer has the fake client index as a cache does.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(object, field, values)
	return nil
}

// partly is a client whose cache does not have all.
type partly struct {
	*api.Client

	w *server
}

func (p partly) Get(ctx context.Context, key client.ObjectKey, into client.Object, with ...client.GetOption) error {
	if _, isSecret := into.(*corev1.Secret); isSecret && key.Name == p.w.hidden {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return p.Client.Get(ctx, key, into, with...)
}

func (p partly) List(ctx context.Context, into client.ObjectList, with ...client.ListOption) error {
	err := p.Client.List(ctx, into, with...)
	if secrets, ok := into.(*corev1.SecretList); ok {
		secrets.Items = slices.DeleteFunc(secrets.Items, func(s corev1.Secret) bool { return s.Name == p.w.hidden })
	}
	return err
}

// mapper knows no kind of infrastructure.
type mapper struct{ meta.RESTMapper }

func (mapper) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

func (w *server) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *server) write(verb string, object client.Object, send func() error) error {
	name := fmt.Sprintf("%s %s", verb, object.GetName())
	w.writes = append(w.writes, name)
	if err := w.refusals[name]; err != nil {
		return err
	}
	return send()
}

func newWorld(t *testing.T) *server {
	t.Helper()
	w := &server{t: t, refusals: map[string]error{}, absent: utilcache.NewExpiring()}
	scheme, err := api.NewScheme()
	w.must(err)
	classic := vocabulary.NewClassic(team, "prod", "demo")
	classic.Cluster.UID = "one"
	classic.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	proxy := vocabulary.ProxySecret(team, "http-proxy", nil)
	proxy.Data = map[string][]byte{"httpProxy": []byte("http://p:1"), "username": []byte("u"), "password": []byte("hunter2")}
	building := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.Cluster{}).WithObjects(classic.Cluster, classic.ControlPlane, proxy)
	w.must(world.SetupIndexes(t.Context(), indexer{building}))
	building.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return w.write("create", o, func() error { o.SetUID("new"); return c.Create(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return w.write("update", o, func() error { return c.Update(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return w.write("delete", o, func() error { return c.Delete(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return w.write("patch", o, func() error { return c.Patch(ctx, o, p, options...) })
		},
	})
	w.stored = building.Build()
	w.shown = api.NewClient(w.stored)
	return w
}

// counted counts reads.
type counted struct {
	client.Reader

	requests *int
}

func (c counted) Get(ctx context.Context, key client.ObjectKey, into client.Object, with ...client.GetOption) error {
	*c.requests++
	return c.Reader.Get(ctx, key, into, with...)
}

// start starts the publisher, which remembers nothing.
func (w *server) start() {
	w.t.Helper()
	var err error
	w.publisher, err = publisher.New(publisher.Config{
		Client: partly{w.shown, w}, Live: counted{w.shown, &w.requests},
		Memory: &world.Memory{
			Cached: partly{w.shown, w}, Live: w.shown, Mapper: mapper{}, Known: w.absent,
		},
		Now: func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }, Concurrency: 1,
		Applier: remote.NewApplier(remote.NewClusters(func(context.Context, client.ObjectKey) (remote.Connection, error) {
			if !w.answers {
				return remote.Connection{}, errors.New("no route to host")
			}
			return remote.Connection{Client: empty{}, Close: func() {}}, nil
		}, noon)),
	})
	w.must(err)
}

// empty is a workload cluster that has nothing, and takes everything.
type empty struct{ client.Client }

func (empty) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return o.GetObjectKind().GroupVersionKind(), nil
}

func (empty) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}
func (empty) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
func (empty) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	o.SetResourceVersion("1")
	return nil
}

func (w *server) cluster() *clusterv1.Cluster {
	w.t.Helper()
	cluster := &clusterv1.Cluster{}
	w.must(w.stored.Get(w.t.Context(), client.ObjectKey{Namespace: team, Name: "prod"}, cluster))
	return cluster
}

// edit changes the Cluster as its user does.
func (w *server) edit(change func(*clusterv1.Cluster)) {
	w.t.Helper()
	cluster := w.cluster()
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	change(cluster)
	w.must(w.stored.Update(w.t.Context(), cluster))
	w.writes = nil
}

func annotated(pairs ...string) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) {
		for pair := range slices.Chunk(pairs, 2) {
			if c.Annotations[pair[0]] = pair[1]; pair[1] == "" {
				delete(c.Annotations, pair[0])
			}
		}
	}
}

func (w *server) secret(name string, change func(*corev1.Secret)) {
	w.t.Helper()
	secret := &corev1.Secret{}
	err := w.stored.Get(w.t.Context(), client.ObjectKey{Namespace: team, Name: name}, secret)
	if missing := apierrors.IsNotFound(err); missing {
		secret.Namespace, secret.Name = team, name
		change(secret)
		w.must(w.stored.Create(w.t.Context(), secret))
	} else if change(secret); secret.Name == "" {
		w.must(w.stored.Delete(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}))
	} else {
		w.must(w.stored.Update(w.t.Context(), secret))
	}
	w.writes = nil
}

// pass returns the writes of a pass, and the condition after it as "status reason message".
func (w *server) pass() (writes []string, condition string, again time.Duration, err error) {
	w.t.Helper()
	cluster := &clusterv1.Cluster{}
	w.must(w.shown.Get(w.t.Context(), client.ObjectKey{Namespace: team, Name: "prod"}, cluster))
	result, err := w.publisher.Reconcile(w.t.Context(), cluster)
	if c := meta.FindStatusCondition(w.cluster().Status.Conditions, output.ConditionProxyPublished); c != nil {
		condition = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
	}
	writes, w.writes = w.writes, nil
	return writes, condition, result.RequeueAfter, err
}

// TestReconcile_PublishesWhatAClusterAsksFor begins with a Cluster that has asked for output env, and has it. Each row
// changes something, and has two passes: the second one writes nothing.
func TestReconcile_PublishesWhatAClusterAsksFor(t *testing.T) {
	t.Parallel()
	const (
		env       = "prod-proxy-outputs"
		published = "True Published env"
		publish   = output.AnnotationPublish
	)
	key := client.ObjectKey{Namespace: team, Name: env}
	for name, test := range map[string]struct {
		change    func(*server)
		writes    []string
		condition string
		again     time.Duration
		// fails is the error of the pass, and data what the Secret has then: "" if it is gone.
		fails, data string
	}{
		"nothing": {change: func(*server) {}, condition: published, data: "p:1"},
		"the proxy is another": {change: func(w *server) {
			w.secret("http-proxy", func(s *corev1.Secret) { s.Data["httpProxy"] = []byte("http://other:2") })
		}, writes: []string{"update " + env}, condition: published, data: "other:2"},
		"somebody changes the Secret": {change: func(w *server) { w.secret(env, func(s *corev1.Secret) { s.Data = nil }) }, writes: []string{"update " + env}, condition: published, data: "p:1"},
		"somebody's labels":           {change: func(w *server) { w.secret(env, func(s *corev1.Secret) { s.Labels["own"] = "1" }) }, condition: published, data: "p:1"},
		"somebody changes our label":  {change: func(w *server) { w.secret(env, func(s *corev1.Secret) { s.Labels[clusterv1.ClusterNameLabel] = "x" }) }, writes: []string{"update " + env}, condition: published, data: "p:1"},
		"a topology has a variable":   {change: func(w *server) { w.edit(withTopology) }, writes: []string{"update " + env}, condition: published, data: "of-the-variable.example"},
		"the variable is wrong":       {change: func(w *server) { w.edit(withTopology); w.edit(withVariable(`{"targets": "%s"}`)) }, condition: "False InvalidSettings ", data: "p:1"},
		"the variable names a Secret": {change: func(w *server) {
			w.secret("mine", func(s *corev1.Secret) { s.Data = map[string][]byte{"httpProxy": []byte("http://of-mine:1")} })
			w.edit(withTopology)
			w.edit(withVariable(`{"secretName": "mine"}`))
		}, writes: []string{"update " + env}, condition: published, data: "of-mine:1"},
		"somebody removes its owner":   {change: func(w *server) { w.secret(env, func(s *corev1.Secret) { s.OwnerReferences = nil }) }, writes: []string{"update " + env}, condition: published, data: "p:1"},
		"somebody deletes it":          {change: func(w *server) { w.secret(env, func(s *corev1.Secret) { s.Name = "" }) }, writes: []string{"create " + env}, condition: published, data: "p:1"},
		"somebody makes it immutable":  {change: func(w *server) { w.secret(env, func(s *corev1.Secret) { s.Immutable = new(true) }) }, condition: published, data: "p:1"},
		"a change of an immutable one": {change: func(w *server) { w.secret(env, func(s *corev1.Secret) { s.Immutable, s.Data = new(true), nil }) }, writes: []string{"delete " + env}, condition: published},
		"no output is asked for":       {change: func(w *server) { w.edit(annotated(publish, "")) }, writes: []string{"delete " + env}},
		"another output is asked for":  {change: func(w *server) { w.edit(annotated(publish, "annotations")) }, writes: []string{"patch prod", "delete " + env}, condition: "True Published annotations"},
		"the label is gone":            {change: func(w *server) { w.edit(func(c *clusterv1.Cluster) { c.Labels = nil }) }, writes: []string{"delete " + env}},
		"a label that cannot be read":  {change: func(w *server) { w.edit(func(c *clusterv1.Cluster) { c.Labels[contract.LabelEnabled] = "yes" }) }, condition: published, data: "p:1"},
		"the Cluster is paused": {change: func(w *server) {
			w.edit(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true); delete(c.Annotations, publish) })
		}, condition: published, data: "p:1"},
		"the Cluster is being deleted": {change: func(w *server) {
			w.secret(env, func(s *corev1.Secret) { s.Name = "" })
			w.edit(func(c *clusterv1.Cluster) { c.Finalizers = []string{"example.com/waits"} })
			w.must(w.stored.Delete(w.t.Context(), w.cluster()))
			w.writes = nil
		}, condition: published},
		"an output that does not exist":     {change: func(w *server) { w.edit(annotated(publish, "evn")) }, condition: `False InvalidOutput annotation capi-proxy-patcher.io/publish entry 1: "evn" is not an output; did you mean env?`, data: "p:1"},
		"an annotation that cannot be read": {change: func(w *server) { w.edit(annotated(contract.AnnotationRollout, "never")) }, condition: "False InvalidSettings annotation capi-proxy-patcher.io/rollout", data: "p:1"},
		"the proxy Secret is gone":          {change: func(w *server) { w.secret("http-proxy", func(s *corev1.Secret) { s.Name = "" }) }, condition: "False SettingsNotFound ", data: "p:1"},
		"the proxy Secret is wrong":         {change: func(w *server) { w.secret("http-proxy", func(s *corev1.Secret) { s.Data["httpProxy"] = []byte("p") }) }, condition: "False InvalidSettings ", data: "p:1"},
		"no endpoint yet": {change: func(w *server) {
			w.edit(func(c *clusterv1.Cluster) { c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{} })
		}, condition: "Unknown WaitingForControlPlaneEndpoint spec.controlPlaneEndpoint of Cluster team/prod is not set yet", data: "p:1"},
		"a refused write": {change: func(w *server) {
			w.secret(env, func(s *corev1.Secret) { s.Data = nil })
			w.refusals["update "+env] = errors.New("refused")
		}, writes: []string{"update " + env}, condition: "Unknown InternalError Please check controller logs for errors", fails: "updating Secret team/" + env + ": refused", data: "-"},
		"a write that conflicts": {change: func(w *server) {
			w.secret(env, func(s *corev1.Secret) { s.Data = nil })
			w.refusals["update "+env] = apierrors.NewConflict(schema.GroupResource{}, env, nil)
		}, writes: []string{"update " + env}, condition: published, data: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.edit(annotated(publish, "env"))
			w.start()
			if writes, condition, _, err := w.pass(); err != nil || condition != published || !slices.Equal(writes, []string{"create " + env}) {
				t.Fatalf("at first: writes %q, condition %q, %v", writes, condition, err)
			}
			test.change(w)
			w.start()
			writes, condition, again, err := w.pass()
			if !slices.Equal(writes, test.writes) || !strings.HasPrefix(condition, test.condition) || (condition == "") != (test.condition == "") ||
				again != test.again || (err == nil) != (test.fails == "") || err != nil && err.Error() != test.fails {
				t.Errorf("writes %q, condition %q, again after %s, error %v", writes, condition, again, err)
			}
			secret := &corev1.Secret{}
			found := w.stored.Get(t.Context(), key, secret) == nil
			if text := fmt.Sprintf("%s", secret.Data); found != (test.data != "") || found && test.data != "-" && !strings.Contains(text, test.data) {
				t.Errorf("Secret is there: %v, with %s", found, text)
			}
			if strings.Contains(fmt.Sprint(w.cluster()), "hunter2") {
				t.Error("a credential in the Cluster")
			}
			if test.fails != "" || test.data == "-" || test.data == "" && test.condition == published {
				return
			}
			if writes, again, _, err := w.pass(); err != nil || len(writes) > 0 || again != condition {
				t.Errorf("the second pass: writes %q, condition %q, %v", writes, again, err)
			}
		})
	}
}

func withTopology(c *clusterv1.Cluster) {
	c.Spec.Topology.ClassRef.Name, c.Spec.Topology.Version = "class", "v1.36.0"
	withVariable(`{"noProxy": ["of-the-variable.example"]}`)(c)
}

func withVariable(value string) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) {
		c.Spec.Topology.Variables = []clusterv1.ClusterVariable{{Name: contract.VariableName, Value: apiextensionsv1.JSON{Raw: []byte(value)}}}
	}
}

// TestReconcile_MeetsASecretThatNoCacheHas creates a Secret whose name is taken.
func TestReconcile_MeetsASecretThatNoCacheHas(t *testing.T) {
	t.Parallel()
	const env = "prod-proxy-outputs"
	for name, test := range map[string]struct {
		labels    map[string]string
		condition string
		again     time.Duration
	}{
		"of a user": {nil, "False NameTaken Secret team/prod-proxy-outputs exists", time.Minute},
		"of ours":   {map[string]string{contract.LabelGenerated: "prod", contract.LabelProxySecret: "", contract.LabelOutput: "proxy-outputs"}, "", 0},
	} {
		w := newWorld(t)
		w.edit(annotated(output.AnnotationPublish, "env"))
		w.secret(env, func(s *corev1.Secret) { s.Labels = test.labels })
		w.hidden = env
		w.start()
		writes, condition, again, err := w.pass()
		if err != nil || !slices.Equal(writes, []string{"create " + env}) || again != test.again ||
			!strings.HasPrefix(condition, test.condition) || (condition == "") != (test.condition == "") {
			t.Errorf("%s: writes %q, condition %q, again after %s, %v", name, writes, condition, again, err)
		}
	}
}

// TestReconcile_AsksOnceAMinuteForANameThatIsTaken has a Secret that no cache has at the name of an output.
func TestReconcile_AsksOnceAMinuteForANameThatIsTaken(t *testing.T) {
	t.Parallel()
	const env = "prod-proxy-outputs"
	w := newWorld(t)
	clock := clocktesting.NewFakeClock(noon())
	w.absent = utilcache.NewExpiringWithClock(clock)
	w.edit(annotated(output.AnnotationPublish, "env"))
	w.secret(env, func(*corev1.Secret) {})
	w.hidden = env
	w.start()
	for _, step := range []struct {
		later    time.Duration
		requests int
	}{{0, 2}, {0, 0}, {59 * time.Second, 0}, {time.Second, 2}, {time.Second, 0}} {
		clock.Step(step.later)
		w.requests = 0
		writes, condition, again, err := w.pass()
		if requests := len(writes) + w.requests; err != nil || again != time.Minute || requests != step.requests ||
			!strings.HasPrefix(condition, "False NameTaken ") {
			t.Errorf("after %s more: %d requests, condition %q, again after %s, %v", step.later, requests, condition, again, err)
		}
	}
	w.secret(env, func(s *corev1.Secret) { s.Name = "" })
	clock.Step(time.Minute)
	if writes, condition, _, err := w.pass(); err != nil || !slices.Equal(writes, []string{"create " + env}) ||
		!strings.HasPrefix(condition, "True ") {
		t.Errorf("a free name: writes %q, condition %q, %v", writes, condition, err)
	}
}

// TestReconcile_LooksForAnAbsentSecretAgain has a proxy Secret without the label by which it is watched.
func TestReconcile_LooksForAnAbsentSecretAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.edit(annotated(output.AnnotationPublish, "env", contract.AnnotationSecret, "other"))
	w.hidden = "other"
	w.start()
	if _, condition, _, err := w.pass(); err != nil || !strings.HasPrefix(condition, "False SettingsNotFound ") {
		t.Fatalf("condition %q, %v", condition, err)
	}
	w.secret("other", func(s *corev1.Secret) { s.Data = map[string][]byte{"httpProxy": []byte("http://p:1")} })
	if _, condition, _, err := w.pass(); err != nil || !strings.HasPrefix(condition, "True Published env") {
		t.Errorf("condition %q, %v", condition, err)
	}
}

// TestReconcile_KeepsOutputsThatTheClusterOfTheAPIServerAsksFor has a process start with a Cluster of the past.
func TestReconcile_KeepsOutputsThatTheClusterOfTheAPIServerAsksFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	old := &clusterv1.Cluster{}
	w.must(w.shown.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "prod"}, old))
	w.edit(annotated(output.AnnotationPublish, "env"))
	if _, condition, _, err := w.pass(); err != nil || condition != "True Published env" {
		t.Fatalf("condition %q, %v", condition, err)
	}
	w.start()
	if _, err := w.publisher.Reconcile(t.Context(), old); err != nil || len(w.writes) > 0 {
		t.Errorf("writes %q, %v", w.writes, err)
	}
}

// TestReconcile_GivesWayToAnotherManager has somebody else remove the content of a Secret again and again.
func TestReconcile_GivesWayToAnotherManager(t *testing.T) {
	t.Parallel()
	const env = "prod-proxy-outputs"
	w := newWorld(t)
	w.edit(annotated(output.AnnotationPublish, "env"))
	w.start()
	for range 6 {
		writes, condition, again, err := w.pass()
		if err != nil {
			t.Fatal(err)
		}
		if len(writes) == 0 {
			if again != time.Minute || !strings.Contains(condition, "Contested") {
				t.Errorf("condition %q, again after %s", condition, again)
			}
			return
		}
		w.secret(env, func(s *corev1.Secret) { s.Data = nil })
	}
	t.Error("nobody gives way")
}

// TestReconcile_ReportsAContestedDeletion has somebody else create a Secret anew after each deletion.
func TestReconcile_ReportsAContestedDeletion(t *testing.T) {
	t.Parallel()
	const env = "prod-proxy-outputs"
	w := newWorld(t)
	w.edit(annotated(output.AnnotationPublish, "env"))
	w.start()
	if _, condition, _, err := w.pass(); err != nil || condition != "True Published env" {
		t.Fatalf("condition %q, %v", condition, err)
	}
	var kept corev1.Secret
	w.must(w.stored.Get(t.Context(), client.ObjectKey{Namespace: team, Name: env}, &kept))
	w.edit(annotated(output.AnnotationPublish, ""))
	for range 6 {
		writes, condition, again, err := w.pass()
		if err != nil {
			t.Fatal(err)
		}
		if len(writes) == 0 {
			if again != time.Minute || !strings.HasPrefix(condition, "False Contested Secret team/"+env+": another manager keeps reverting our changes") {
				t.Errorf("condition %q, again after %s", condition, again)
			}
			return
		}
		w.secret(env, func(s *corev1.Secret) {
			s.Labels, s.OwnerReferences, s.Data = kept.Labels, kept.OwnerReferences, kept.Data
		})
	}
	t.Error("nobody gives way")
}

// TestReconcile_LeavesSecretsOfOthersAlone has a Secret with the name of output env.
func TestReconcile_LeavesSecretsOfOthersAlone(t *testing.T) {
	t.Parallel()
	const env = "prod-proxy-outputs"
	for name, labels := range map[string]map[string]string{
		"of a user":          nil,
		"of another Cluster": {contract.LabelGenerated: "other", contract.LabelOutput: env},
	} {
		w := newWorld(t)
		w.edit(annotated(output.AnnotationPublish, "env,annotations"))
		w.secret(env, func(s *corev1.Secret) { s.Labels, s.Data = labels, map[string][]byte{"own": nil} })
		w.start()
		writes, condition, again, err := w.pass()
		if err != nil || !slices.Equal(writes, []string{"patch prod"}) || again != time.Minute ||
			!strings.HasPrefix(condition, "False NameTaken * Secret team/prod-proxy-outputs exists and was not written by capi-proxy-patcher for this Cluster; delete or rename it\n") {
			t.Errorf("%s: writes %q, condition %q, again after %s, %v", name, writes, condition, again, err)
		}
		w.edit(annotated(output.AnnotationPublish, ""))
		if writes, condition, _, err := w.pass(); err != nil || !slices.Equal(writes, []string{"patch prod"}) || condition != "" {
			t.Errorf("%s, not asked for: writes %q, condition %q, %v", name, writes, condition, err)
		}
	}
}

// TestReconcile_WritesAnnotations also removes them.
func TestReconcile_WritesAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secret("http-proxy", func(s *corev1.Secret) { delete(s.Data, "username"); delete(s.Data, "password") })
	w.edit(annotated(output.AnnotationPublish, "annotations", "own", "1"))
	w.start()
	if writes, condition, _, err := w.pass(); err != nil || !slices.Equal(writes, []string{"patch prod"}) || condition != "True Published annotations" {
		t.Errorf("writes %q, condition %q, %v", writes, condition, err)
	}
	if got := w.cluster().Annotations; got[output.AnnotationHTTPProxy] != "http://p:1" || got["own"] != "1" {
		t.Errorf("annotations %v", got)
	}
	w.edit(annotated(output.AnnotationHTTPProxy, "http://forged:1"))
	if writes, _, _, err := w.pass(); err != nil || !slices.Equal(writes, []string{"patch prod"}) ||
		w.cluster().Annotations[output.AnnotationHTTPProxy] != "http://p:1" {
		t.Errorf("writes %q, %v", writes, err)
	}
	w.edit(annotated(output.AnnotationPublish, ""))
	if _, condition, _, err := w.pass(); err != nil || condition != "" || !maps.Equal(w.cluster().Annotations, map[string]string{"own": "1"}) {
		t.Errorf("condition %q, annotations %v, %v", condition, w.cluster().Annotations, err)
	}
}

// TestReconcile_MarksAClusterBeforeAnythingIsInItsWorkloadCluster publishes a ConfigMap there, and takes it back.
func TestReconcile_MarksAClusterBeforeAnythingIsInItsWorkloadCluster(t *testing.T) {
	t.Parallel()
	const away = "the workload cluster does not answer with the kubeconfig of Secret team/prod-kubeconfig; the log of the manager has the details"
	marked := func(w *server) bool {
		return w.cluster().Annotations[output.AnnotationApplied] == contract.AppliedValue
	}
	w := newWorld(t)
	w.edit(annotated(output.AnnotationPublish, "trust"))
	w.start()
	if writes, condition, _, err := w.pass(); err != nil || !slices.Equal(writes, []string{"patch prod"}) || !marked(w) ||
		!strings.HasPrefix(condition, "Unknown Delivering * "+away) {
		t.Errorf("not applied yet: writes %q, condition %q, %v", writes, condition, err)
	}
	w.edit(annotated(output.AnnotationPublish, ""))
	if writes, condition, _, err := w.pass(); err != nil || len(writes) > 0 || !marked(w) || condition != "Unknown Withdrawing "+away {
		t.Errorf("not deleted yet: writes %q, condition %q, %v", writes, condition, err)
	}
	w.answers = true
	w.start()
	if writes, condition, _, err := w.pass(); err != nil || !slices.Equal(writes, []string{"patch prod"}) || marked(w) || condition != "" {
		t.Errorf("nothing is left: writes %q, condition %q, %v", writes, condition, err)
	}
	w.edit(annotated(output.AnnotationPublish, "trust"))
	if _, condition, _, err := w.pass(); err != nil || !marked(w) || !strings.HasPrefix(condition, "True Published trust=kube-system") {
		t.Errorf("applied: condition %q, %v", condition, err)
	}
	w.refusals["patch prod"] = errors.New("refused")
	w.edit(annotated(output.AnnotationApplied, ""))
	if _, condition, _, err := w.pass(); err == nil || condition != "Unknown InternalError Please check controller logs for errors" {
		t.Errorf("a mark that is refused: condition %q, %v", condition, err)
	}
}

func TestNew_NeedsItsConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	for name, remove := range map[string]func(*publisher.Config){
		"Client":      func(c *publisher.Config) { c.Client = nil },
		"Live":        func(c *publisher.Config) { c.Live = nil },
		"Memory":      func(c *publisher.Config) { c.Memory = nil },
		"Now":         func(c *publisher.Config) { c.Now = nil },
		"Applier":     func(c *publisher.Config) { c.Applier = nil },
		"Concurrency": func(c *publisher.Config) { c.Concurrency = 0 },
	} {
		config := w.publisher.Config
		if remove(&config); func() bool { _, err := publisher.New(config); return err == nil }() {
			t.Errorf("without %s a Controller is made", name)
		}
	}
}

func TestMain(m *testing.M) {
	contract.Add(output.Names())
	m.Run()
}

func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }
