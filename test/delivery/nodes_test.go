package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	nodeImage      = "registry.example.com/capi-proxy-patcher:v1"
	otherNodeImage = "registry.example.com/capi-proxy-patcher:v2"
	password       = "s3cr%t\"$'\\`{{"
)

// inPlace is a Cluster that asks for updates in place, with its workload cluster.
type inPlace struct {
	publisher

	workload *mgmt.Cluster
	remote   client.Client
	// leave ends the API server of the workload cluster.
	leave func()
}

// newInPlace makes one, with a manager for its namespace that the returned function ends, and waits until the first
// files are applied.
func newInPlace(t *testing.T, before func(inPlace)) (inPlace, func()) {
	t.Helper()
	if shared == nil {
		t.Skipf("%s is not set", mgmt.AssetsVariable)
	}
	ns := vocabulary.Namespace(t, shared.Client, "nodes-")
	stop := manage(t, ns, "--node-image", nodeImage)
	workload := vocabulary.StartCluster(t, mgmt.Options{Workload: true})
	leave := sync.OnceFunc(func() {
		if err := workload.KillServer(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(leave) // it would wait for the watches of Cluster API
	c := inPlace{publisher: newPublisher(t, ns, "prod", "annotations", map[string]string{
		"httpProxy": proxyURL, "username": "u", "password": password, "readinessEndpoints": "https://a.example.com/",
	}), workload: workload, leave: leave}
	c.remote = c.connect(workload)
	if before != nil {
		before(c)
	}
	c.annotate(contract.AnnotationRollout, contract.RolloutInPlace)
	c.annotate(contract.AnnotationPublish, "")
	return c, stop
}

// annotate sets an annotation of the Cluster, or removes it for "".
func (c inPlace) annotate(key, value string) {
	c.T.Helper()
	c.Edit(func(cluster *clusterv1.Cluster) {
		if cluster.Annotations == nil {
			cluster.Annotations = map[string]string{}
		}
		if cluster.Annotations[key] = value; value == "" {
			delete(cluster.Annotations, key)
		}
	})
}

// get reads an object of the workload cluster, and reports whether it exists.
func get[T client.Object](c inPlace, name string, object T) bool {
	c.T.Helper()
	err := c.remote.Get(c.T.Context(), client.ObjectKey{Namespace: contract.NodesNamespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		c.T.Fatal(err)
	}
	return err == nil
}

// has waits until the workload cluster has the current version of a generated Secret, and returns its DaemonSet and the
// version.
func (c inPlace) has(generated string) (*appsv1.DaemonSet, string) {
	return c.hasWith(generated, nodeImage)
}

// hasWith is has with another image.
func (c inPlace) hasWith(generated, image string) (*appsv1.DaemonSet, string) {
	c.T.Helper()
	set, version := &appsv1.DaemonSet{}, ""
	eventually(c.T, "files of "+generated+" in the workload cluster", func() string {
		var files map[string][]byte
		version, files = c.version(generated, image)
		if !get(c, version, set) {
			return "no DaemonSet " + version
		}
		secret := &corev1.Secret{}
		if !get(c, version, secret) {
			return "no Secret " + version
		}
		return cmp.Diff(files, secret.Data)
	})
	return set, version
}

// version returns the current version of a generated Secret, and its files.
func (c inPlace) version(generated, image string) (string, map[string][]byte) {
	c.T.Helper()
	of := &corev1.Secret{}
	err := shared.Client.Get(c.T.Context(), client.ObjectKey{Namespace: c.Namespace, Name: generated}, of)
	if client.IgnoreNotFound(err) != nil {
		c.T.Fatal(err)
	}
	data := nodeData(c.T, of.Data)
	return publish.NodeFiles{
		Cluster: c.Name, Secret: generated, Data: data, Key: publish.NodeKey(of.UID), Image: image, PullPolicy: "Always",
	}.Version(), publish.ForNodes(data)
}

// versions returns the names of our Secrets in the workload cluster.
func (c inPlace) versions() []string {
	c.T.Helper()
	var secrets corev1.SecretList
	if err := c.remote.List(c.T.Context(), &secrets, client.InNamespace(contract.NodesNamespace),
		client.HasLabels{contract.LabelNodeFiles}); err != nil {
		c.T.Fatal(err)
	}
	var names []string
	for i := range secrets.Items {
		names = append(names, secrets.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// grant labels a Node, which is in no pool, with a version. It makes the Node if there is none.
func (c inPlace) grant(name, version string) {
	c.T.Helper()
	node := &corev1.Node{}
	if !get(c, name, node) {
		node.Name, node.Labels = name, map[string]string{contract.LabelNodeFiles: version}
		vocabulary.Create(c.T, c.remote, node)
		return
	}
	vocabulary.Change(c.T, c.remote, node, func(n *corev1.Node) { n.Labels[contract.LabelNodeFiles] = version })
}

// finalizes stands in for the controller of namespaces, which an API server alone does not have: it empties a Namespace
// that is being deleted, and lets it go.
func (c inPlace) finalizes() string {
	c.T.Helper()
	ctx := context.Background() //nolint:forbidigo // also when the test has ended
	namespace := &corev1.Namespace{}
	err := c.remote.Get(ctx, client.ObjectKey{Name: contract.NodesNamespace}, namespace)
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err == nil && !namespace.DeletionTimestamp.IsZero() {
		for _, kind := range []client.Object{&corev1.Pod{}, &corev1.Secret{}, &appsv1.DaemonSet{}} {
			if err := c.remote.DeleteAllOf(ctx, kind, client.InNamespace(contract.NodesNamespace),
				client.GracePeriodSeconds(0)); err != nil {
				c.T.Fatal(err)
			}
		}
		namespace.Spec.Finalizers = nil
		err = client.IgnoreNotFound(c.remote.SubResource("finalize").Update(ctx, namespace))
	}
	if err != nil && !apierrors.IsConflict(err) {
		c.T.Fatal(err)
	}
	return "the Namespace is there"
}

// isGone waits until nothing of ours is in either cluster.
func (c inPlace) isGone() {
	c.T.Helper()
	eventually(c.T, "nothing in the workload cluster", c.finalizes)
	c.Eventually("")
	annotations := c.Cluster().Annotations
	if _, applied := annotations[contract.AnnotationApplied]; applied {
		c.T.Errorf("the Cluster has annotations %v", annotations)
	}
	var left corev1.SecretList
	if err := shared.Client.List(c.T.Context(), &left, client.InNamespace(c.Namespace),
		client.HasLabels{contract.LabelOutput}); err != nil || len(left.Items) > 0 {
		c.T.Errorf("left are %v, %v", left.Items, err)
	}
	var labelled corev1.NodeList
	if err := c.remote.List(c.T.Context(), &labelled, client.HasLabels{contract.LabelNodeFiles}); err != nil ||
		len(labelled.Items) > 0 {
		c.T.Errorf("labelled Nodes are %v, %v", labelled.Items, err)
	}
}

// TestNodes_GetFilesAndLoseThem follows a Cluster from the annotation on to the annotation off.
func TestNodes_GetFilesAndLoseThem(t *testing.T) {
	t.Parallel()
	c, stop := newInPlace(t, nil)
	c.Eventually(contract.ReasonPublished, "node files prod-proxy-files")
	set, version := c.has("prod-proxy-files")
	if got := set.Spec.Template.Spec.Containers[0]; got.Image != nodeImage || got.ImagePullPolicy != corev1.PullAlways {
		t.Errorf("image %s, pulled %s", got.Image, got.ImagePullPolicy)
	}
	if c.Cluster().Annotations[contract.AnnotationApplied] != contract.AppliedValue {
		t.Errorf("annotations %v", c.Cluster().Annotations)
	}
	versions := c.objectVersions()
	c.annotate("example.com/own", "x")
	c.fence("rest")
	if diff := cmp.Diff(versions, c.objectVersions()); diff != "" {
		t.Errorf("a pass without news writes (-before +after):\n%s", diff)
	}
	stop = c.restarts(stop)
	c.changesFiles(version)
	c.changesImage(stop)
	c.annotate(contract.AnnotationRollout, "")
	c.isGone()
}

// objectVersions are the resource versions of what is applied.
func (c inPlace) objectVersions() map[string]string {
	c.T.Helper()
	const name = "prod-proxy-files"
	set, version := c.has(name)
	return map[string]string{
		"DaemonSet": set.ResourceVersion,
		"Namespace": vocabulary.Fetch(c.T, c.remote, "", contract.NodesNamespace, &corev1.Namespace{}).ResourceVersion,
		"files": vocabulary.Fetch(c.T, c.remote, contract.NodesNamespace, version,
			&corev1.Secret{}).ResourceVersion,
	}
}

// restarts has another manager apply everything again. A DaemonSet that changes would restart its Pods.
func (c inPlace) restarts(stop func()) func() {
	c.T.Helper()
	stop()
	before, _ := c.has("prod-proxy-files")
	const enforced = "pod-security.kubernetes.io/enforce"
	ns := vocabulary.Fetch(c.T, c.remote, "", contract.NodesNamespace, &corev1.Namespace{})
	vocabulary.Change(c.T, c.remote, ns, func(ns *corev1.Namespace) { ns.Labels[enforced] = "baseline" })
	stop = manage(c.T, c.Namespace, "--node-image", nodeImage)
	eventually(c.T, "the Namespace restored", func() string {
		now := vocabulary.Fetch(c.T, c.remote, "", contract.NodesNamespace, &corev1.Namespace{})
		if now.Labels[enforced] != "privileged" {
			return fmt.Sprint(now.Labels)
		}
		return ""
	})
	c.fence("restarted")
	if after, _ := c.has("prod-proxy-files"); after.Generation != before.Generation {
		c.T.Errorf("the DaemonSet changes:\n%s", cmp.Diff(before.Spec, after.Spec))
	}
	return stop
}

// changesFiles changes the proxy while a Node has the label of the version before.
func (c inPlace) changesFiles(before string) {
	t := c.T
	t.Helper()
	c.grant("node-a", before)
	c.UseProxy(map[string]string{"httpProxy": otherProxyURL})
	version := before
	eventually(t, "another version", func() string {
		if _, version = c.has("prod-proxy-files"); version == before {
			return version
		}
		return ""
	})
	both := []string{before, version}
	slices.Sort(both)
	if got := c.versions(); !slices.Equal(got, both) || !get(c, before, &appsv1.DaemonSet{}) {
		t.Errorf("Secrets %v, want %v", got, both)
	}
	c.grant("node-a", version)
	c.annotate("example.com/own", "y") // a pass comes in a minute at the latest
	eventually(t, "the version before gone", func() string {
		if got := c.versions(); !slices.Equal(got, []string{version}) || get(c, before, &appsv1.DaemonSet{}) {
			return fmt.Sprint(got)
		}
		return ""
	})
	set, _ := c.has("prod-proxy-files")
	c.annotate(contract.AnnotationInPlaceMaxUnavailable, "25 %")
	c.Eventually(contract.ReasonInvalidSettings, `"25 %" is neither a positive number nor a percentage`)
	if kept, same := c.has("prod-proxy-files"); same != version || kept.Generation != set.Generation {
		t.Errorf("an annotation that cannot be read changes the DaemonSet:\n%s", cmp.Diff(set.Spec, kept.Spec))
	}
	c.annotate(contract.AnnotationInPlaceMaxUnavailable, "25%")
	c.Eventually(contract.ReasonPublished)
}

// changesImage restarts the manager, first without an image, then with another one. It is another version.
func (c inPlace) changesImage(stop func()) {
	t := c.T
	t.Helper()
	stop()
	before, version := c.has("prod-proxy-files")
	stop = manage(t, c.Namespace)
	c.Eventually(contract.ReasonInPlaceNotInstalled, "the manager runs without --node-image")
	stop()
	if kept, _ := c.has("prod-proxy-files"); kept.Generation != before.Generation {
		t.Errorf("without an image the DaemonSet changes:\n%s", cmp.Diff(before.Spec, kept.Spec))
	}
	manage(t, c.Namespace, "--node-image", otherNodeImage)
	set, other := c.hasWith("prod-proxy-files", otherNodeImage)
	if got := set.Spec.Template.Spec.InitContainers[0].Image; got != otherNodeImage || other == version {
		t.Errorf("version %s of image %s", other, got)
	}
	c.Eventually(contract.ReasonPublished)
	if kept, _ := c.has("prod-proxy-files"); kept.Generation != before.Generation {
		t.Errorf("the version of a Node changes:\n%s", cmp.Diff(before.Spec, kept.Spec))
	}
}

// TestNodes_OfAPoolHaveFilesOfTheirOwn has a pool with another proxy Secret, and takes it away again.
func TestNodes_OfAPoolHaveFilesOfTheirOwn(t *testing.T) {
	t.Parallel()
	c, _ := newInPlace(t, nil)
	o := vocabulary.NewClassic(c.Namespace, c.Name, c.Name)
	o.Deployment.Annotations = map[string]string{contract.AnnotationSecret: "pool"}
	vocabulary.Create(t, shared.Client, vocabulary.ProxySecret(c.Namespace, "pool", map[string]string{"httpProxy": otherProxyURL}),
		vocabulary.MachineTemplate(c.Namespace, c.Name), o.Template, o.Deployment)
	const ofPool = "prod.prod-md.md.proxy-files"
	_, own := c.has("prod-proxy-files")
	_, other := c.has(ofPool)
	vocabulary.Change(t, shared.Client, vocabulary.Fetch(t, shared.Client, c.Namespace, "prod-md", &clusterv1.MachineDeployment{}),
		func(d *clusterv1.MachineDeployment) { delete(d.Annotations, contract.AnnotationSecret) })
	eventually(t, "no files of the pool", func() string {
		if get(c, other, &appsv1.DaemonSet{}) || len(c.versions()) != 1 {
			return fmt.Sprint(c.versions())
		}
		return ""
	})
	c.Eventually(contract.ReasonPublished, "node files prod-proxy-files")
	if _, same := c.has("prod-proxy-files"); same != own {
		t.Errorf("the version of the other nodes is %s, was %s", same, own)
	}
	c.Edit(func(cluster *clusterv1.Cluster) { delete(cluster.Labels, contract.LabelEnabled) })
	c.isGone()
}

// TestNodes_OfClustersThatArePausedOrDeletedStayAsTheyAre pauses a Cluster, and then deletes it while its workload
// cluster is away.
func TestNodes_OfClustersThatArePausedOrDeletedStayAsTheyAre(t *testing.T) {
	t.Parallel()
	c, _ := newInPlace(t, nil)
	_, version := c.has("prod-proxy-files")
	c.Eventually(contract.ReasonPublished)
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = new(true) })
	before := c.objectVersions()
	c.UseProxy(map[string]string{"httpProxy": otherProxyURL})
	c.annotate(contract.AnnotationRollout, "")
	c.fence("paused")
	if diff := cmp.Diff(before, c.objectVersions()); diff != "" {
		t.Errorf("what is applied for a paused Cluster changes:\n%s", diff)
	}
	c.annotate(contract.AnnotationRollout, contract.RolloutInPlace)
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = nil })
	eventually(t, "what was asked for while it was paused", func() string {
		if _, now := c.has("prod-proxy-files"); now == version {
			return now
		}
		return ""
	})
	c.Eventually(contract.ReasonPublished)
	c.leave()
	const own = "example.com/hold"
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Finalizers = []string{own} })
	if err := shared.Client.Delete(t.Context(), c.Cluster()); err != nil {
		t.Fatal(err)
	}
	c.annotate(contract.AnnotationRollout, "")
	c.fence("deleted")
	if cluster := c.Cluster(); !slices.Equal(cluster.Finalizers, []string{own}) {
		t.Errorf("finalizers of a deleted Cluster are %v", cluster.Finalizers)
	}
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Finalizers = nil })
	err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: c.Namespace, Name: c.Name}, &clusterv1.Cluster{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the deleted Cluster: %v", err)
	}
}

// fence waits until the manager has published another Cluster, so that it has seen everything of before.
func (c inPlace) fence(name string) {
	c.T.Helper()
	newPublisher(c.T, c.Namespace, name, "annotations", map[string]string{"httpProxy": proxyURL}).
		Eventually(contract.ReasonPublished)
}

// nodeData is what nodes get of a generated Secret with the default targets.
func nodeData(t *testing.T, generated map[string][]byte) map[string][]byte {
	t.Helper()
	data, err := plan.NodeData(settings.Options{Targets: contract.Targets()}, generated)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
