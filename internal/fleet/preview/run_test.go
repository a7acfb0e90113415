package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// running returns an API server with a Cluster that has a proxy Secret, no label, and a Machine of its control plane, of
// its MachineDeployment and of another Cluster, and two nodes of a MachinePool.
func (s *server) running() client.Client {
	t := s.t
	t.Helper()
	c := vocabulary.NewClassic("team", "one", "demo")
	secret := vocabulary.ProxySecret("team", "one-http-proxy", nil)
	secret.Data = map[string][]byte{contract.KeyHTTPProxy: []byte("http://proxy.example.com:3128")}
	c.Pool.Status.NodeRefs = append(c.Pool.Status.NodeRefs, corev1.ObjectReference{Name: "node-p"}, corev1.ObjectReference{Name: "node-q"})
	if s.inPlace == "" {
		s.inPlace = "Failed"
	}
	c.Cluster.Status.Conditions = []metav1.Condition{{
		Type: contract.ConditionProxyConfigured, Status: "False", Reason: "InPlace" + s.inPlace, Message: "of a node",
	}}
	objects := []client.Object{c.Cluster, c.ControlPlane, c.Deployment, c.Template, c.Pool, c.Config, secret}
	objects = append(objects, s.others...)
	for name, labels := range map[string]map[string]string{
		"one-cp-a":   {clusterv1.ClusterNameLabel: "one", clusterv1.MachineControlPlaneLabel: ""},
		"one-md-a":   {clusterv1.ClusterNameLabel: "one", clusterv1.MachineDeploymentNameLabel: "one-md"},
		"one-md-b":   {clusterv1.ClusterNameLabel: "one", clusterv1.MachineDeploymentNameLabel: "one-md"},
		"other-md-a": {clusterv1.ClusterNameLabel: "other", clusterv1.MachineDeploymentNameLabel: "one-md"},
	} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: labels, CreationTimestamp: metav1.Unix(1, 0)}}
		machine.Spec = vocabulary.MachineSpec(labels[clusterv1.ClusterNameLabel], "demo", "KubeadmConfig", name)
		if name != "one-md-b" { // it has no Node yet
			machine.Status.NodeRef.Name = "node-of-" + name
		}
		config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: labels, CreationTimestamp: metav1.Unix(1, 0)}}
		if name == "one-md-a" {
			config.Annotations = map[string]string{contract.AnnotationUpdatedAt: "1970-01-12T00:00:00Z"} // without updated-files: its node has files of static-pods
		}
		config.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: "1", Controller: new(true),
		}}
		config.Status.DataSecretName = name
		config.Status.Conditions = []metav1.Condition{{
			Type: bootstrapv1.KubeadmConfigDataSecretAvailableCondition, Status: metav1.ConditionTrue, Reason: "Available",
			LastTransitionTime: metav1.Unix(1, 0),
		}}
		objects = append(objects, machine, config)
	}
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects { // as an API server does
		if object.GetUID() == "" {
			object.SetUID(types.UID(object.GetName()))
		}
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithStatusSubresource(&clusterv1.Cluster{}).WithObjects(objects...)
	return api.NewClient(interceptor.NewClient(stored.Build(), s.funcs()))
}

// server is an API server that fails for a write that is no dry run. It carries out all changes but the last.
type server struct {
	t        *testing.T
	carryOut bool
	others   []client.Object // beside those of the Cluster
	unread   string          // the object that cannot be read
	inPlace  string          // the end of the reason of the condition before, "Failed" if empty
}

// of returns where a write of object goes: a copy of it, unless it is carried out. The stand-in of an API server does not
// answer dry runs with the object.
func (s *server) of(ctx context.Context, stored client.Client, object client.Object, dryRun []string) client.Client {
	if !slices.Equal(dryRun, []string{metav1.DryRunAll}) {
		s.t.Errorf("a write of %T %s is no dry run", object, object.GetName())
	}
	if s.carryOut {
		return stored
	}
	building, found := fake.NewClientBuilder().WithScheme(stored.Scheme()).WithReturnManagedFields(), object.DeepCopyObject().(client.Object)
	if err := stored.Get(ctx, client.ObjectKeyFromObject(object), found); err == nil {
		building = building.WithObjects(found)
	}
	return building.Build()
}

func (s *server) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if s.unread != "" && key.Name == s.unread {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("no right"))
			}
			return c.Get(ctx, key, o, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return s.of(ctx, c, o, (&client.CreateOptions{}).ApplyOptions(options).DryRun).Create(ctx, o)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			err := s.of(ctx, c, o, (&client.UpdateOptions{}).ApplyOptions(options).DryRun).Update(ctx, o)
			o.SetUID(types.UID(o.GetName())) // as an API server does
			return err
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return s.of(ctx, c, o, (&client.DeleteOptions{}).ApplyOptions(options).DryRun).Delete(ctx, o)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			sent := (&client.PatchOptions{}).ApplyOptions(options)
			return s.of(ctx, c, o, sent.DryRun).Patch(ctx, o, p, &client.PatchOptions{FieldManager: sent.FieldManager, Force: sent.Force})
		},
		SubResourceApply: func(ctx context.Context, c client.Client, name string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			if dryRun := (&client.SubResourceApplyOptions{}).ApplyOpts(options).DryRun; !slices.Equal(dryRun, []string{metav1.DryRunAll}) {
				s.t.Errorf("a write of %s is no dry run", name)
			}
			return c.SubResource(name).Apply(ctx, o, options...)
		},
	}
}

// try returns what run says about the last of some changes, in lines.
func (s *server) try(changes ...string) (lines string) {
	t := s.t
	t.Helper()
	api := s.running()
	for i, change := range changes {
		s.carryOut = i < len(changes)-1
		objects, err := ReadChanges(strings.NewReader(change))
		if err != nil {
			t.Fatal(err)
		}
		result, err := (&runner{api: api, Options: Options{
			Namespace: "team", Cluster: "one", Changes: objects, Now: func() time.Time { return time.Unix(1_000_000, 0) },
		}}).run(t.Context())
		if err != nil {
			return err.Error()
		}
		var b strings.Builder
		for _, w := range result.Writes {
			fmt.Fprintf(&b, "%s %s %s, spec %t\n", w.Verb, w.Kind, w.Name, w.Spec)
		}
		for _, r := range result.Rolls {
			fmt.Fprintf(&b, "replaced %s %s %s %s\n", r.Kind, r.Name, r.Machines, r.Why)
		}
		for _, i := range result.InPlace {
			fmt.Fprintf(&b, "in place %s %s %s %s\n", i.Kind, i.Name, i.Machines, i.Nodes)
		}
		for _, g := range result.Data().Behind {
			fmt.Fprintf(&b, "behind %s %s %d\n", g.Kind, g.Name, len(g.Machines))
		}
		lines = b.String() + result.Hint + result.Condition.Reason
	}
	return lines
}

func TestRun_SaysWhatAChangeDoes(t *testing.T) {
	t.Parallel()
	const (
		none    = "{kind: Secret, apiVersion: v1, metadata: {name: another}}"
		at      = "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: one, "
		label   = `labels: {capi-proxy-patcher.io/enabled: "true"}`
		rollout = ", annotations: {capi-proxy-patcher.io/rollout: "
		static  = rollout + "InPlace, capi-proxy-patcher.io/targets: 'containerd,static-pods'}}}"
		secret  = `{apiVersion: v1, kind: Secret, metadata: {name: one-http-proxy, labels: {capi-proxy-patcher.io/proxy: ""}}, data: {httpProxy: aHR0cDovL25leHQ6MQ==}}`
		objects = "create Secret one-proxy-files, spec true\n"
		pools   = "patch KubeadmConfigTemplate one-md, spec true\npatch KubeadmConfig one-mp, spec true\n"
		control = "in place KubeadmControlPlane one [one-cp-a] [node-of-one-cp-a]\n"
		inPlace = control + "in place MachineDeployment one-md [one-md-a] [node-of-one-md-a]\n"
		nodes   = inPlace + "in place MachinePool one-mp [] [node-p node-q]\n"
		pool    = "behind MachineDeployment one-md 2\n"
		behind  = "behind KubeadmControlPlane one 1\n" + pool
		noNode  = "behind MachineDeployment one-md 1\n"
		noLabel = "it has no label capi-proxy-patcher.io/enabled=true, so the controller configures no proxy for it, and removes what it has written before"
	)
	for name, test := range map[string]struct {
		changes []string
		want    string
	}{
		"nothing": {[]string{none}, noLabel},
		"the label": {
			[]string{at + label + "}}"},
			objects + pools + behind + contract.ReasonWaitingForRollout,
		},
		"the label, at once": {
			[]string{at + label + rollout + "Immediate}}}"},
			objects + "patch KubeadmControlPlane one, spec true\n" + pools + "patch MachineDeployment one-md, spec true\n" +
				"replaced KubeadmControlPlane one [one-cp-a] its bootstrap configuration changes\n" +
				"replaced MachineDeployment one-md [one-md-a one-md-b] spec.rollout.after is set, because Machines are behind and annotation rollout is Immediate\n" +
				contract.ReasonConfigured,
		},
		"the label, in place": {
			[]string{at + label + rollout + "InPlace}}}"},
			objects + pools + nodes + noNode + contract.ReasonWaitingForRollout,
		},
		"the label, in place, with static Pods": {
			[]string{at + label + static},
			objects + pools + nodes + noNode + contract.ReasonWaitingForRollout,
		},
		"nothing, after that": {
			[]string{at + label + static, none},
			control + pool + contract.ReasonWaitingForRollout,
		},
		"another proxy, after that": {
			[]string{at + label + static, secret},
			"update Secret one-proxy-files, spec true\n" + nodes + noNode + contract.ReasonWaitingForRollout,
		},
		"nothing, while nodes get another proxy": {
			[]string{at + label + static, secret, none},
			inPlace + noNode + contract.ReasonWaitingForRollout,
		},
		"the same targets, after that": {
			[]string{at + label + static, at + label + strings.Replace(static, "containerd,static-pods", "static-pods, containerd", 1)},
			control + pool + contract.ReasonWaitingForRollout,
		},
		"other targets, after that": {
			[]string{at + label + static, at + label + strings.Replace(static, "containerd,", "containerd,kubelet,", 1)},
			pools + nodes + noNode + contract.ReasonWaitingForRollout,
		},
		"nothing, after the label": {[]string{at + label + "}}", none}, behind + contract.ReasonWaitingForRollout},
		"another proxy":            {[]string{at + label + "}}", secret}, "update Secret one-proxy-files, spec true\n" + behind + contract.ReasonWaitingForRollout},
		"another proxy, in place": {
			[]string{at + label + rollout + "InPlace}}}", secret},
			"update Secret one-proxy-files, spec true\n" + nodes + noNode + contract.ReasonWaitingForRollout,
		},
		"in place, after all objects have it": {
			[]string{at + label + rollout + "Immediate}}}", at + label + rollout + "InPlace}}}"},
			nodes + noNode + "InPlaceFailed",
		},
		"a Secret without a proxy": {
			[]string{at + label + "}}", strings.Replace(secret, "aHR0cDovL25leHQ6MQ==", "eA==", 1)},
			behind + contract.ReasonInvalidSettings,
		},
		"another kind": {
			[]string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}"},
			"ConfigMap one cannot be tried out; only a Cluster, a Secret, a MachineDeployment or a MachinePool can",
		},
		"no label, after it was there": {[]string{at + label + "}}", at + "labels: {}}}"}, pools + "delete Secret one-proxy-files, spec true\n" + noLabel},
		"a Cluster that is paused":     {[]string{at + label + "}, spec: {paused: true}}"}, "it is paused, so the controller changes nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, (&server{t: t}).try(test.changes...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRun_KnowsNotWhetherTheManagerChangesNodes has a manager without an image for them, and everything else done.
func TestRun_KnowsNotWhetherTheManagerChangesNodes(t *testing.T) {
	t.Parallel()
	const cluster = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: one, " +
		"labels: {capi-proxy-patcher.io/enabled: \"true\"}, annotations: {capi-proxy-patcher.io/rollout: "
	got := (&server{t: t, inPlace: "NotInstalled"}).try(cluster+"Immediate}}", cluster+"InPlace}}")
	if !strings.HasSuffix(got, "InPlaceNotInstalled") {
		t.Errorf("got %s", got)
	}
}

// TestRun_LeavesATemplateToTheClusterThatUsesIt has a template with the entries of one Cluster and a pool of another.
func TestRun_LeavesATemplateToTheClusterThatUsesIt(t *testing.T) {
	t.Parallel()
	for label, taken := range map[string]bool{"true": false, "yes": false, "false": true, "": true} {
		two := vocabulary.NewClassic("team", "two", "demo")
		two.Cluster.Labels = map[string]string{contract.LabelEnabled: label}
		file := bootstrapv1.File{Path: contract.PathProxyEnv, Owner: "root:root", Permissions: "0600"}
		file.ContentFrom.Secret = bootstrapv1.SecretFileSource{Name: "one-proxy-files", Key: contract.KeyProxyEnv}
		two.Template.Spec.Template.Spec.Files = append(two.Template.Spec.Template.Spec.Files, file)
		s := &server{t: t, others: []client.Object{two.Cluster, two.Deployment, two.Template}}
		if label == "" {
			s.others = s.others[2:]
		}
		got := s.try("{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: one, labels: {capi-proxy-patcher.io/enabled: 'false'}}}")
		if strings.Contains(got, "patch KubeadmConfigTemplate two-md, spec true\n") != taken {
			t.Errorf("with label %q:\n%s", label, got)
		}
	}
}

func TestRun_NamesTheClusterThatIsNotThere(t *testing.T) {
	t.Parallel()
	api := (&server{t: t}).running()
	const want = "Cluster team/none not found; found: team/one"
	if _, err := (&runner{api: api, Options: Options{Namespace: "team", Cluster: "none"}}).run(t.Context()); err == nil || err.Error() != want {
		t.Errorf("says %v, want %s", err, want)
	}
}

// TestUnknown_SkipsPoolsWithoutProxy has five Machines without a KubeadmConfig in each of two pools, of which one gets the
// proxy.
func TestUnknown_SkipsPoolsWithoutProxy(t *testing.T) {
	t.Parallel()
	w, err := newSnapshot(t.Context(), (&server{t: t}).running(), "team")
	if err != nil {
		t.Fatal(err)
	}
	var result Result
	for name, recipe := range map[string]*patch.Recipe{"proxied": {}, "direct": nil} {
		o := controller.NewObject(&bootstrapv1.KubeadmConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}, plan.KindTemplate, false)
		o.Pools = []plan.Pool{{Pool: settings.Pool{Kind: settings.KindMachineDeployment}, Object: name}}
		result.Reconciled = append(result.Reconciled, controller.Reconciled{Object: o, Recipe: recipe})
	}
	of := func(kind, name string) (names []string) {
		for i := 0; kind == settings.KindMachineDeployment && i < 5; i++ {
			names = append(names, fmt.Sprintf("%s-%d", name, i))
		}
		return names
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one"}}
	if result.Unknown, err = unknown(t.Context(), w, cluster, of, result); err != nil || len(result.Unknown) != 5 ||
		!strings.HasSuffix(result.Incomparable(), ": proxied-0, proxied-1, proxied-2 and 2 more") {
		t.Errorf("got %q, %s, error %v", result.Unknown, result.Incomparable(), err)
	}
}

// done returns an API server with a Cluster that is configured. Of its old Machines, it has the one that is kept. No
// manager runs.
func (s *server) done(kept string) client.Client {
	t := s.t
	t.Helper()
	shown := s.running()
	s.carryOut = true
	objects, err := ReadChanges(strings.NewReader("{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: one, " +
		`labels: {capi-proxy-patcher.io/enabled: "true"}, annotations: {capi-proxy-patcher.io/rollout: Immediate}}}`))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Namespace: "team", Cluster: "one", Changes: objects, Now: func() time.Time { return time.Unix(1_000_000, 0) }}
	if _, err := (&runner{api: shown, Options: o}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one-cp-a", "one-md-a", "one-md-b"} {
		if name == kept {
			continue
		}
		meta := metav1.ObjectMeta{Namespace: "team", Name: name}
		for _, object := range []client.Object{&bootstrapv1.KubeadmConfig{ObjectMeta: meta}, &clusterv1.Machine{ObjectMeta: meta}} {
			if err := shown.Delete(t.Context(), object, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
		}
	}
	return shown
}

// edit changes an object of a server that carries changes out.
func edit[T any, O interface {
	*T
	client.Object
}](t *testing.T, api client.Client, name string, change func(O)) {
	t.Helper()
	object := O(new(T))
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, object); err != nil {
		t.Fatal(err)
	}
	change(object)
	if err := api.Update(t.Context(), object, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
}

// TestOpen_IsRightWithoutAManager is the gate before an old password is withdrawn. Whatever is recorded, it is the pass
// that decides.
func TestOpen_IsRightWithoutAManager(t *testing.T) {
	t.Parallel()
	const (
		toCome  = "still to come: update Secret one-proxy-files"
		unknown = "which Machines are behind is not known"
		other   = "http://next.example.com:3128"

		incomparable = "whether a Machine is behind is not known while it has no KubeadmConfig with status.dataSecretName: "
	)
	proxy := func(change func(*corev1.Secret)) func(*testing.T, client.Client) {
		return func(t *testing.T, api client.Client) { t.Helper(); edit(t, api, "one-http-proxy", change) }
	}
	cluster := func(change func(*clusterv1.Cluster)) func(*testing.T, client.Client) {
		return func(t *testing.T, api client.Client) { t.Helper(); edit(t, api, "one", change) }
	}
	for name, test := range map[string]struct {
		change          func(*testing.T, client.Client)
		unread, kept    string
		behind, notTrue string
	}{
		"nothing is left": {},
		"another value, and no manager": {
			change: proxy(func(s *corev1.Secret) { s.Data[contract.KeyHTTPProxy] = []byte(other) }), behind: toCome, notTrue: toCome,
		},
		"another value in a Secret without its label": {
			change: proxy(func(s *corev1.Secret) { s.Labels, s.Data[contract.KeyHTTPProxy] = nil, []byte(other) }),
			behind: toCome, notTrue: toCome,
		},
		"an object that lost its entries": {
			change: func(t *testing.T, api client.Client) {
				t.Helper()
				edit(t, api, "one-md", func(o *bootstrapv1.KubeadmConfigTemplate) { o.Spec.Template.Spec = bootstrapv1.KubeadmConfigSpec{} })
			},
			behind: "still to come: patch KubeadmConfigTemplate one-md", notTrue: "still to come: patch KubeadmConfigTemplate one-md",
		},
		"a Machine that is behind": {
			kept: "one-md-b", behind: "1 Machine of MachineDeployment one-md has outdated proxy settings: one-md-b",
		},
		"a Machine whose KubeadmConfig names no data": {
			kept: "one-cp-a", change: func(t *testing.T, api client.Client) {
				t.Helper()
				edit(t, api, "one-cp-a", func(o *bootstrapv1.KubeadmConfig) { o.Status.DataSecretName = "" })
			},
			behind: incomparable + "one-cp-a",
		},
		"a Machine whose KubeadmConfig is missing": {
			kept: "one-md-b", change: func(t *testing.T, api client.Client) {
				t.Helper()
				config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one-md-b"}}
				if err := api.Delete(t.Context(), config, client.DryRunAll); err != nil {
					t.Fatal(err)
				}
			},
			behind: incomparable + "one-md-b",
		},
		"a typo": {
			change: proxy(func(s *corev1.Secret) { s.Data["pasword"] = []byte("x") }),
			behind: unknown + "; the condition would be False InvalidSettings", notTrue: "the condition would be False InvalidSettings",
		},
		"a Secret that is gone": {
			change: func(t *testing.T, api client.Client) {
				t.Helper()
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one-http-proxy"}}
				if err := api.Delete(t.Context(), secret, client.DryRunAll); err != nil {
					t.Fatal(err)
				}
			},
			behind: unknown + "; the condition would be False SettingsNotFound", notTrue: "the condition would be False SettingsNotFound",
		},
		"a Secret without the label that nobody may read": {
			change: func(t *testing.T, api client.Client) {
				t.Helper()
				secret := &corev1.Secret{}
				if err := api.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "one-http-proxy"}, secret); err != nil {
					t.Fatal(err)
				}
				secret.Labels = nil
				if err := api.Update(t.Context(), secret, client.DryRunAll); err != nil {
					t.Fatal(err)
				}
			},
			unread: "one-http-proxy", behind: "forbidden", notTrue: "forbidden",
		},
		"a Cluster that is paused": {
			change: cluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }),
			behind: unknown + "; it is paused, so the controller changes nothing", notTrue: "it is paused, so the controller changes nothing",
		},
		"a Cluster that is being deleted": {
			change: func(t *testing.T, api client.Client) {
				t.Helper()
				edit(t, api, "one", func(c *clusterv1.Cluster) { c.Finalizers = []string{clusterv1.ClusterFinalizer} })
				if err := api.Delete(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one"}}, client.DryRunAll); err != nil {
					t.Fatal(err)
				}
			},
			behind: unknown + "; it is being deleted", notTrue: "it is being deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{t: t}
			shown := s.done(test.kept)
			if test.change != nil {
				test.change(t, shown)
			}
			s.carryOut, s.unread = false, test.unread
			count := 0
			clusters := []client.ObjectKey{{Namespace: "none", Name: "two"}, {Namespace: "team", Name: "one"}}
			o := Options{Now: func() time.Time { return time.Unix(1_000_000, 0) }}
			runEach(t.Context(), shown, o, clusters, func(key client.ObjectKey, result Result, err error) {
				count++
				if key.Namespace == "none" {
					if err == nil || err.Error() != "Cluster none/two not found, and namespace none has none: name another with --namespace" {
						t.Errorf("a Cluster that is not there: %v", err)
					}
					return
				}
				behind, notTrue := strings.Join(result.Unmet(true, false), "; "), strings.Join(result.Unmet(false, true), "; ")
				if apierrors.IsForbidden(err) {
					behind, notTrue = "forbidden", "forbidden"
				} else if err != nil {
					t.Error(err)
				}
				if behind != test.behind || notTrue != test.notTrue {
					t.Errorf("behind %q, want %q; not true %q, want %q", behind, test.behind, notTrue, test.notTrue)
				}
			})
			if count != len(clusters) {
				t.Errorf("%d results", count)
			}
		})
	}
}
