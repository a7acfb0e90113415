package inplace_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	team = "team"
	main = "prod-proxy-files"
	set  = "capi-proxy-patcher-" + main
)

// clusters are a management cluster with the controller and Cluster prod, which asks for updates in place and has two
// Machines, and its workload cluster.
type clusters struct {
	t          *testing.T
	management client.Client
	workload   client.WithWatch
	controller *controller.Controller
	now        time.Time
	// away is why the workload cluster does not answer, and refused an object that it refuses to write.
	away    error
	refused string
	// image is that of nodes, "" if updates in place are not installed.
	image string
	// requests are those to the workload cluster.
	requests int
}

// indexer has the fake client index as a cache does.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(object, field, values)
	return nil
}

// mapper knows no kind of infrastructure.
type mapper struct{ meta.RESTMapper }

func (mapper) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// recorder drops events.
type recorder struct{ events.EventRecorder }

func (recorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (c *clusters) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func newClusters(t *testing.T) *clusters {
	t.Helper()
	c := &clusters{t: t, now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), image: "registry.example.com/i:v1"}
	known, err := api.NewScheme()
	c.must(err)
	classic := vocabulary.NewClassic(team, "prod", "demo")
	classic.Cluster.UID = "cluster"
	classic.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	classic.Cluster.Annotations = map[string]string{contract.AnnotationRollout: inplace.RolloutInPlace}
	proxy := vocabulary.ProxySecret(team, "http-proxy", nil)
	proxy.Data = map[string][]byte{"httpProxy": []byte("http://p:1"), "username": []byte("u"), "password": []byte("hunter2")}
	building := fake.NewClientBuilder().WithScheme(known).WithStatusSubresource(&clusterv1.Cluster{}).
		WithObjects(classic.Cluster, classic.ControlPlane, classic.Deployment, classic.Template, proxy)
	nodes := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithReturnManagedFields()
	for _, name := range []string{"a", "b"} {
		labels := map[string]string{clusterv1.ClusterNameLabel: "prod", clusterv1.MachineDeploymentNameLabel: classic.Deployment.Name}
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, UID: types.UID(name), Labels: labels}}
		machine.Status.NodeRef.Name = name
		config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
			Namespace: team, Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: name, UID: machine.UID, Controller: new(true)}},
		}}
		config.Status.DataSecretName = name
		building.WithObjects(machine, config)
		nodes.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	c.must(world.SetupIndexes(t.Context(), indexer{building}))
	building.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
			o.SetUID("new")
			return api.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if o.GetUID() == "" { // an API server keeps it
				o.SetUID("new")
			}
			return api.Update(ctx, o, options...)
		},
	})
	write := func(o client.Object, send func() error) error {
		c.requests++
		if c.away != nil {
			return c.away
		}
		if c.refused != "" && o.GetName() == c.refused {
			return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(), errors.New("hunter2"))
		}
		return send()
	}
	nodes.WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return write(&corev1.Node{}, func() error { return api.List(ctx, list, options...) })
		},
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return write(o, func() error { return api.Create(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return write(o, func() error { return api.Patch(ctx, o, p, options...) })
		},
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return write(o, func() error { return api.Delete(ctx, o, options...) })
		},
	})
	c.management, c.workload = building.Build(), nodes.Build()
	c.start()
	return c
}

// start starts the manager, which remembers nothing.
func (c *clusters) start() {
	c.t.Helper()
	clock := func() time.Time { return c.now }
	shown := api.NewClient(c.management)
	connect := func(context.Context, client.ObjectKey) (remote.Connection, error) {
		return remote.Connection{Client: c.workload, Close: func() {}}, nil
	}
	step := inplace.NewStep(remote.NewClusters(connect, clock), shown, inplace.NodePods{Image: c.image, PullPolicy: "Always"}, clock)
	var err error
	c.controller, err = controller.New(controller.Config{
		Client: shown, Live: shown, Now: clock, Steps: []controller.Step{step}, Recorder: recorder{},
		Memory: &world.Memory{Cached: shown, Live: shown, Mapper: mapper{}, Known: utilcache.NewExpiring(), Now: clock},
	})
	c.must(err)
}

// pass is a pass over the Cluster, after the time for which equal writes are remembered. It returns the condition as
// "reason message", and when the next pass is due.
func (c *clusters) pass() (condition string, again time.Duration) {
	c.t.Helper()
	c.now = c.now.Add(5 * time.Minute)
	result, err := c.controller.Reconcile(c.t.Context(), c.cluster())
	c.must(err)
	if found := meta.FindStatusCondition(c.cluster().Status.Conditions, contract.ConditionProxyConfigured); found != nil {
		condition = found.Reason + " " + found.Message
	}
	return condition, result.RequeueAfter
}

// wantPass fails unless the condition after a pass has a part, or is "" for "".
func (c *clusters) wantPass(what, part string) {
	c.t.Helper()
	if condition, _ := c.pass(); !strings.Contains(condition, part) || part == "" && condition != "" {
		c.t.Errorf("%s: condition %q, want %q", what, condition, part)
	}
}

func (c *clusters) cluster() *clusterv1.Cluster {
	c.t.Helper()
	cluster := &clusterv1.Cluster{}
	c.must(c.management.Get(c.t.Context(), client.ObjectKey{Namespace: team, Name: "prod"}, cluster))
	return cluster
}

// edit changes the Cluster as its user does.
func (c *clusters) edit(change func(*clusterv1.Cluster)) {
	c.t.Helper()
	cluster := c.cluster()
	change(cluster)
	c.must(c.management.Update(c.t.Context(), cluster))
}

func (c *clusters) enable(value string) {
	c.t.Helper()
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = map[string]string{contract.LabelEnabled: value} })
}

func (c *clusters) annotate(key, value string) {
	c.t.Helper()
	c.edit(func(cluster *clusterv1.Cluster) {
		if cluster.Annotations[key] = value; value == "" {
			delete(cluster.Annotations, key)
		}
	})
}

// get reads an object of kube-system in the workload cluster, and reports whether it is there.
func (c *clusters) get(name string, object client.Object) bool {
	c.t.Helper()
	key := client.ObjectKey{Name: name}
	switch object.(type) {
	case *corev1.Node, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *corev1.Namespace:
	default:
		key.Namespace = "kube-system"
	}
	err := c.workload.Get(c.t.Context(), key, object)
	c.must(client.IgnoreNotFound(err))
	return err == nil
}

// version is that of the DaemonSet.
func (c *clusters) version() string {
	c.t.Helper()
	var daemonSet appsv1.DaemonSet
	if !c.get(set, &daemonSet) {
		c.t.Fatal("there is no DaemonSet")
	}
	return daemonSet.Spec.Template.Labels[inplace.LabelFilesVersion]
}

// files are those of a version.
func (c *clusters) files(version string) map[string][]byte {
	c.t.Helper()
	var secret corev1.Secret
	if !c.get("capi-proxy-patcher-"+version, &secret) {
		c.t.Fatalf("there is no Secret of version %s", version)
	}
	return secret.Data
}

// run has nodes run Pods of the present version, whose container watch has a state.
func (c *clusters) run(state corev1.ContainerState, nodes ...string) {
	c.t.Helper()
	for _, node := range nodes {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "on-" + node}}
		c.must(client.IgnoreNotFound(c.workload.Delete(c.t.Context(), pod)))
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "on-" + node, Labels: map[string]string{
			"app.kubernetes.io/name": inplace.NodesApp, inplace.LabelFilesVersion: c.version(),
		}}}
		pod.Spec.NodeName = node
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "watch", State: state}}
		c.must(c.workload.Create(c.t.Context(), pod))
	}
}

var running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}

// hold has a node take slot 0 or, for "", release it.
func (c *clusters) hold(node string) {
	c.t.Helper()
	var lease coordinationv1.Lease
	if !c.get("capi-proxy-patcher-slot-0", &lease) {
		c.t.Fatal("there is no slot 0")
	}
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &node, new(metav1.NewMicroTime(c.now))
	c.must(c.workload.Update(c.t.Context(), &lease, client.FieldOwner("agent")))
}

// slots are the names of the Leases.
func (c *clusters) slots() (names []string) {
	c.t.Helper()
	var leases coordinationv1.LeaseList
	c.must(c.workload.List(c.t.Context(), &leases))
	for i := range leases.Items {
		names = append(names, leases.Items[i].Name+"="+*cmpOr(leases.Items[i].Spec.HolderIdentity))
	}
	return names
}

func cmpOr(text *string) *string {
	if text == nil {
		return new("")
	}
	return text
}

// left are all objects but Nodes and Pods.
func (c *clusters) left() (names []string) {
	c.t.Helper()
	for _, list := range []client.ObjectList{
		&appsv1.DaemonSetList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
		&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &coordinationv1.LeaseList{}, &corev1.NamespaceList{},
	} {
		c.must(c.workload.List(c.t.Context(), list))
		all, err := meta.ExtractList(list)
		c.must(err)
		for _, object := range all {
			names = append(names, fmt.Sprintf("%T %s", object, object.(client.Object).GetName())) //nolint:forcetypeassert // it is one
		}
	}
	return names
}

func (c *clusters) labels() string {
	c.t.Helper()
	var nodes corev1.NodeList
	c.must(c.workload.List(c.t.Context(), &nodes))
	text := ""
	for i := range nodes.Items {
		text += nodes.Items[i].Name + "=" + nodes.Items[i].Labels[inplace.LabelNodeFiles] + " "
	}
	return strings.TrimSpace(text)
}

// TestStep_FromTheAnnotationToItsEnd follows two nodes through a turn, a failure, a removal, and an end.
func TestStep_FromTheAnnotationToItsEnd(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	c.wantPass("nothing is done", "0 of 2 nodes have the current files of Secret prod-proxy-files; waiting for a, b")
	if got := c.labels(); got != "a="+main+" b="+main {
		t.Errorf("labels %s", got)
	}
	if got := c.slots(); !slices.Equal(got, []string{"capi-proxy-patcher-slot-0="}) {
		t.Errorf("slots %v", got)
	}
	if c.cluster().Annotations[inplace.AnnotationInPlaceApplied] != contract.AppliedValue {
		t.Error("the Cluster does not say that objects may be there")
	}
	first := c.version()
	if files := c.files(first); !strings.Contains(string(files[contract.KeyProxyEnv]), "hunter2") || files[contract.KeyNodeFiles] == nil ||
		files[contract.KeyNoProxyOrigins] != nil {
		t.Errorf("keys of files: %d", len(files))
	}
	c.pass() // the fake API server does not hand fields over at once
	if _, again := c.pass(); again != 30*time.Second {
		t.Errorf("the next pass comes after %s", again)
	}
	c.hold("a")
	c.wantPass("a turn", "it is the turn of a since "+c.now.Format(time.RFC3339)+"; waiting for b")
	c.run(running, "a", "b")
	c.wantPass("a turn that is not released", "1 of 2 nodes")
	c.hold("")
	c.wantPass("all done", "Configured ")
	if _, again := c.pass(); again != 0 {
		t.Errorf("all done, and the next pass comes after %s", again)
	}
	config := &bootstrapv1.KubeadmConfig{}
	c.must(c.management.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "a"}, config))
	if config.Annotations[contract.AnnotationUpdatedFiles] == "" {
		t.Error("a Machine with other entries is not recorded with its files")
	}

	c.annotate(inplace.AnnotationInPlaceMaxUnavailable, "3")
	c.pass()
	if got := c.slots(); len(got) != 3 {
		t.Errorf("slots %v", got)
	}
	if c.version() == first {
		t.Error("another number of slots does not reach the Pods")
	}
	if c.get("capi-proxy-patcher-"+first, &corev1.Secret{}) {
		t.Error("an earlier version is left")
	}
	c.annotate(inplace.AnnotationInPlaceMaxUnavailable, "10%")
	c.wantPass("a percentage", `InvalidSettings annotation capi-proxy-patcher.io/in-place-max-unavailable: "10%" is not a number from 1 to 100`)
	c.annotate(inplace.AnnotationInPlaceMaxUnavailable, "")
	c.pass()
	if got := c.slots(); len(got) != 1 {
		t.Errorf("slots %v", got)
	}

	c.hold("a")
	c.run(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError"}}, "a")
	c.wantPass("a failure", "InPlaceFailed * node a: its Pod cannot be started: CreateContainerError; it keeps its turn since ")
	c.hold("")

	c.annotate(contract.AnnotationTargets, "what cannot be read")
	c.enable(contract.LabelDisabledValue)
	c.wantPass("a removal", "0 of 2 nodes are restored")
	if got := c.slots(); len(got) != 1 {
		t.Errorf("slots of a removal: %v", got)
	}
	if files := c.files(c.version()); len(files[contract.KeyProxyEnv]) > 0 {
		t.Error("a removal has files")
	}
	c.run(running, "a", "b")
	c.wantPass("all nodes restored", "what updates in place have in the workload cluster is being deleted")
	if got := c.cluster().Annotations[inplace.AnnotationInPlaceApplied]; got != inplace.RestoredValue {
		t.Errorf("while objects are deleted the Cluster has %q", got)
	}
	c.pass()
	if got := c.left(); len(got) > 0 || c.labels() != "a= b=" {
		t.Errorf("left are %v, labels %s", got, c.labels())
	}
	if _, left := c.cluster().Annotations[inplace.AnnotationInPlaceApplied]; left {
		t.Error("the Cluster says that objects may be there")
	}
}

// TestStep_EndsWithoutAnImage removes the label while the manager runs without --node-image, so that files stay.
func TestStep_EndsWithoutAnImage(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	c.pass()
	c.image = ""
	c.start()
	c.wantPass("not installed", "InPlaceNotInstalled ")
	if got := c.left(); len(got) == 0 {
		t.Error("what is applied goes")
	}
	c.enable(contract.LabelDisabledValue)
	c.pass()
	c.pass()
	if got := c.left(); len(got) > 0 || c.labels() != "a= b=" {
		t.Errorf("left are %v, labels %s", got, c.labels())
	}
}

// TestStep_EndsWithTheAnnotation has another rollout, and files that stay.
func TestStep_EndsWithTheAnnotation(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	c.pass()
	c.annotate(contract.AnnotationRollout, "")
	c.refused = set
	c.wantPass("an object that cannot be deleted", "cannot tell how far updates in place are")
	c.refused = ""
	c.pass()
	c.pass()
	if got := c.left(); len(got) > 0 || c.labels() != "a= b=" {
		t.Errorf("left are %v, labels %s", got, c.labels())
	}
	if _, left := c.cluster().Annotations[inplace.AnnotationInPlaceApplied]; left {
		t.Error("the Cluster says that objects may be there")
	}
	before := c.requests
	if c.pass(); c.requests > before {
		t.Error("a Cluster that asks for nothing has its workload cluster asked")
	}
}

// TestStep_TakesNoFilesFromAStoredSecret has a tenant write the generated Secret before each pass.
func TestStep_TakesNoFilesFromAStoredSecret(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	c.pass()
	before := c.version()
	secret := &corev1.Secret{}
	for _, key := range []string{contract.KeySetup, contract.KeyProxyEnv, contract.KeyNodeFiles, contract.KeyTrustedCABundle} {
		c.must(c.management.Get(t.Context(), client.ObjectKey{Namespace: team, Name: main}, secret))
		secret.Data[key] = []byte("#!/bin/sh\nevil # Managed by capi-proxy-patcher\n")
		c.must(c.management.Update(t.Context(), secret))
		if c.pass(); c.version() != before || strings.Contains(fmt.Sprintf("%s", c.files(before)), "evil") {
			t.Errorf("%s: a stored value reaches nodes", key)
		}
	}
}

// TestStep_LeavesObjectsOfOthersAlone has a user of the workload cluster prepare objects of our names, copy our labels to
// others, and take ours away.
func TestStep_LeavesObjectsOfOthersAlone(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	labels := map[string]string{"app.kubernetes.io/name": inplace.NodesApp, contract.LabelGenerated: "prod"}
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels}
	}
	foreign := []client.Object{
		&appsv1.DaemonSet{ObjectMeta: in(set)}, &corev1.ServiceAccount{ObjectMeta: in("capi-proxy-patcher")},
		&corev1.Secret{ObjectMeta: in("capi-proxy-patcher-x")}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "capi-proxy-patcher-nodes", Labels: labels}},
		&coordinationv1.Lease{ObjectMeta: in("capi-proxy-patcher-slot-0")},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "capi-proxy-patcher", Labels: labels}},
	}
	for _, object := range foreign {
		c.must(c.workload.Create(t.Context(), object, client.FieldOwner("kubectl")))
	}
	condition, _ := c.pass()
	for _, part := range []string{
		"DaemonSet kube-system/" + set, "ServiceAccount kube-system/capi-proxy-patcher", "ClusterRole capi-proxy-patcher",
		"Lease kube-system/capi-proxy-patcher-slot-0",
	} {
		if want := part + " of the workload cluster exists and was not written by capi-proxy-patcher"; !strings.HasPrefix(condition, "NameTaken ") ||
			!strings.Contains(condition, want) {
			t.Errorf("%q lacks %s", condition, want)
		}
	}
	c.annotate(contract.AnnotationRollout, "")
	c.pass()
	c.pass()
	if got := c.left(); len(got) != len(foreign) {
		t.Errorf("left are %v", got)
	}
	for _, object := range foreign {
		now, _ := object.DeepCopyObject().(client.Object)
		if c.must(c.workload.Get(t.Context(), client.ObjectKeyFromObject(object), now)); now.GetResourceVersion() != object.GetResourceVersion() {
			t.Errorf("%T %s was changed", object, object.GetName())
		}
	}
}

// TestStep_PutsBackWhatABackupBrought has an older DaemonSet and Secret restored, and labels of objects taken away.
func TestStep_PutsBackWhatABackupBrought(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	c.pass()
	old := c.version()
	backup := []client.Object{&appsv1.DaemonSet{}, &corev1.Secret{}}
	c.get(set, backup[0])
	c.get("capi-proxy-patcher-"+old, backup[1])
	proxy := &corev1.Secret{}
	c.must(c.management.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "http-proxy"}, proxy))
	proxy.Data["password"] = []byte("another")
	c.must(c.management.Update(t.Context(), proxy))
	c.pass()
	present := c.version()
	if present == old {
		t.Fatal("another password is no other version")
	}
	c.must(c.workload.Delete(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: set}}))
	for _, object := range backup {
		object.SetResourceVersion("")
		c.must(c.workload.Create(t.Context(), object, client.FieldOwner(contract.Name)))
	}
	if c.version() != old {
		t.Fatal("the backup is not there")
	}
	if c.pass(); c.version() != present || c.get("capi-proxy-patcher-"+old, &corev1.Secret{}) {
		t.Errorf("version %s after a pass, want %s alone", c.version(), present)
	}
	secret := &corev1.Secret{}
	c.get("capi-proxy-patcher-"+present, secret)
	secret.Labels, secret.Data = nil, map[string][]byte{contract.KeyProxyEnv: []byte("evil")}
	c.must(c.workload.Update(t.Context(), secret, client.FieldOwner("kubectl")))
	if c.pass(); !strings.Contains(string(c.files(present)[contract.KeyProxyEnv]), "another") {
		t.Error("a changed Secret is not put back")
	}
}

// TestStep_WorksBesideAnother has two managers take turns over the same Cluster: neither changes what the other wrote.
func TestStep_WorksBesideAnother(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	c.pass()
	first, version := c.controller, c.version()
	c.start()
	for range 3 {
		c.controller, first = first, c.controller
		if condition, _ := c.pass(); c.version() != version || !strings.HasPrefix(condition, "InPlaceProgressing ") {
			t.Errorf("version %s, condition %s", c.version(), condition)
		}
	}
}

func TestStep_ReportsWhatItCannotDo(t *testing.T) {
	t.Parallel()
	const away = "cannot tell how far updates in place are: the workload cluster does not answer with the kubeconfig of Secret " +
		"team/prod-kubeconfig; the log of the manager has the details"
	c := newClusters(t)
	c.image = ""
	c.start()
	c.wantPass("not installed", "InPlaceNotInstalled * annotation capi-proxy-patcher.io/rollout is InPlace, and the manager runs without --node-image")
	c.image, c.refused = "i", set
	c.start()
	c.wantPass("refused", "InPlaceFailed * updates in place: the workload cluster refuses DaemonSet kube-system/"+set+" (status 403)")
	c.refused, c.away = "", errors.New(http.StatusText(http.StatusBadGateway))
	c.wantPass("away", "InPlaceUnknown * "+away)
	c.enable(contract.LabelDisabledValue)
	c.wantPass("away, and the label is gone", "to leave nodes and workload cluster as they are, remove annotations capi-proxy-patcher.io/rollout and capi-proxy-patcher.io/in-place-applied")
	c.annotate(contract.AnnotationRollout, "")
	c.annotate(inplace.AnnotationInPlaceApplied, "")
	before := c.requests
	if condition, _ := c.pass(); strings.Contains(condition, "InPlace") || c.requests > before {
		t.Errorf("nothing may be there: %s", condition)
	}
}

// TestStep_LeavesNodesThatItDoesNotKnow has a node of no Machine, a Machine that is replaced, and a slot of a node that is
// gone.
func TestStep_LeavesNodesThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	c.must(c.workload.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}))
	c.pass()
	c.hold("b")
	c.must(c.workload.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}))
	c.pass()
	if got := c.slots(); !slices.Equal(got, []string{"capi-proxy-patcher-slot-0="}) || c.labels() != "a="+main+" foreign=" {
		t.Errorf("slots %v, labels %s", got, c.labels())
	}
}

// TestStep_WaitsForTheLabelThatTheCacheLacks has a Cluster whose label was removed and set again.
func TestStep_WaitsForTheLabelThatTheCacheLacks(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	c.pass()
	shown := c.cluster()
	shown.Labels[contract.LabelEnabled] = contract.LabelDisabledValue
	before := c.version()
	result, err := c.controller.Reconcile(t.Context(), shown)
	if err != nil || result.RequeueAfter == 0 || c.version() != before {
		t.Errorf("%+v, %v, version %s", result, err, c.version())
	}
}
