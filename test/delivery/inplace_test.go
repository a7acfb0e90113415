package delivery

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// followed is a Cluster that asks for updates in place, whose Machines have joined a workload cluster with the
// controllers of Kubernetes.
type followed struct {
	inPlace
	agents

	polls int
}

// nodeNames are the Nodes whose Machines have the product's files.
func nodeNames() []string { return []string{"node-a", "node-b", "node-c"} }

// newFollowed makes one, and waits until every node has the first files.
func newFollowed(t *testing.T) (followed, func()) {
	t.Helper()
	var c followed
	in, stop := newInPlace(t, func(in inPlace) {
		c.agents = newAgents(t, in.remote)
		controllers(t, in.workload)
		o := vocabulary.NewClassic(in.Namespace, in.Name, in.Name)
		vocabulary.Create(t, shared.Client, vocabulary.MachineTemplate(in.Namespace, in.Name), o.Template, o.Deployment, o.Config,
			o.Pool)
		template := &bootstrapv1.KubeadmConfigTemplate{}
		eventually(t, "the template patched", func() string {
			vocabulary.Fetch(t, shared.Client, in.Namespace, in.Name+"-md", template)
			vocabulary.Fetch(t, shared.Client, in.Namespace, in.Name+"-mp", o.Config)
			if len(template.Spec.Template.Spec.Files) == 0 || len(o.Config.Spec.Files) == 0 {
				return "no files"
			}
			return ""
		})
		vocabulary.Fetch(t, shared.Client, in.Namespace, o.Pool.Name, o.Pool)
		o.Pool.Status.NodeRefs = []corev1.ObjectReference{{Name: "node-p"}}
		if err := shared.Client.Status().Update(t.Context(), o.Pool); err != nil {
			t.Fatal(err)
		}
		for _, node := range nodeNames() {
			in.joins(node, template.Spec.Template.Spec)
		}
		in.joins("plain", bootstrapv1.KubeadmConfigSpec{PreKubeadmCommands: []string{"true"}})
		for _, node := range append(nodeNames(), "node-p", "plain", "foreign") {
			newNode(t, in.remote, node)
		}
	})
	c.inPlace = in
	var want []string
	for _, node := range append(nodeNames(), "node-p", "plain") {
		want = append(want, node+" prod-proxy-files")
	}
	eventually(t, "labels of Nodes", func() string {
		c.round()
		return cmp.Diff(want, c.labels())
	})
	c.reports("True", contract.ReasonConfigured)
	return c, stop
}

// joins makes a worker Machine with bootstrap data of a spec, whose Node has its name.
func (c inPlace) joins(name string, spec bootstrapv1.KubeadmConfigSpec) {
	c.T.Helper()
	c.joinsAs(name, spec, clusterv1.MachineDeploymentNameLabel, c.Name+"-md")
}

// joinsAs is joins with the label of its group.
func (c inPlace) joinsAs(name string, spec bootstrapv1.KubeadmConfigSpec, label, value string) {
	c.T.Helper()
	labels := map[string]string{clusterv1.ClusterNameLabel: c.Name, label: value}
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}, Spec: spec}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name, Labels: labels},
		Spec:       vocabulary.MachineSpec(c.Name, c.Name, "KubeadmConfig", name),
	}
	vocabulary.Create(c.T, shared.Client, config, machine)
	config.Status.DataSecretName = name
	config.Status.Conditions = []metav1.Condition{{
		Type: bootstrapv1.KubeadmConfigDataSecretAvailableCondition, Status: metav1.ConditionTrue, Reason: "Available",
		LastTransitionTime: metav1.NewTime(timeOfDay().Add(-time.Minute)),
	}}
	machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: name}
	for _, object := range []client.Object{config, machine} {
		if err := shared.Client.Status().Update(c.T.Context(), object); err != nil {
			c.T.Fatal(err)
		}
	}
	vocabulary.Change(c.T, shared.Client, config, func(config *bootstrapv1.KubeadmConfig) {
		config.Labels = labels
		config.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: machine.UID, Controller: new(true),
		}}
	})
}

// round has the agents do a step and, now and then, the manager a pass: it looks at a workload cluster every half minute.
func (c *followed) round() {
	c.T.Helper()
	c.work()
	if c.polls++; c.polls%8 == 0 {
		c.annotate("example.com/own", strconv.Itoa(c.polls))
	}
}

// reports waits, while the agents work, until the condition has a status and a reason, "" for any, and its message
// parts.
func (c *followed) reports(status, reason string, parts ...string) {
	c.T.Helper()
	eventually(c.T, "condition ProxyConfigured", func() string {
		c.round()
		condition := vocabulary.Condition(c.Cluster())
		message := condition.Message
		for _, part := range parts {
			if !strings.Contains(message, part) {
				return fmt.Sprintf("%s lacks %q", condition.Reason+" "+message, part)
			}
		}
		if string(condition.Status) != status || reason != "" && condition.Reason != reason {
			return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, message)
		}
		return ""
	})
}

// behind waits until so many Machines are behind. The one that was made without the product has its files by an update
// in place only.
func (c *followed) behind(machines int) {
	c.T.Helper()
	eventually(c.T, "Machines behind", func() string {
		c.round()
		got := c.Cluster().Annotations[contract.AnnotationMachinesBehind]
		if !strings.Contains(got, fmt.Sprintf(`"machines":%d,`, machines)) {
			return got
		}
		return ""
	})
}

// labels returns the labels of Nodes.
func (c *followed) labels() (labelled []string) {
	c.T.Helper()
	var list corev1.NodeList
	if err := c.remote().List(c.T.Context(), &list); err != nil {
		c.T.Fatal(err)
	}
	for i := range list.Items {
		if value, found := list.Items[i].Labels[inplace.LabelNodeFiles]; found {
			labelled = append(labelled, list.Items[i].Name+" "+value)
		}
	}
	return labelled
}

func (c *followed) remote() client.Client { return c.inPlace.remote }

// has waits, while the agents work, for the current version.
func (c *followed) has(generated string) (*appsv1.DaemonSet, string) {
	return c.inPlace.hasWith(generated, nodeImage)
}

// updated returns contract.AnnotationUpdatedAt of the Machines with files.
func (c *followed) updated() (times []string) {
	c.T.Helper()
	for _, name := range nodeNames() {
		config := vocabulary.Fetch(c.T, shared.Client, c.Namespace, name, &bootstrapv1.KubeadmConfig{})
		times = append(times, config.Annotations[contract.AnnotationUpdatedAt])
	}
	return times
}

// TestInPlace_IsFollowed follows a rotated password through a workload cluster with the controllers of Kubernetes.
func TestInPlace_IsFollowed(t *testing.T) {
	t.Parallel()
	c, stop := newFollowed(t)
	c.behind(0)
	c.failsOnOneNode()
	c.drifts()
	c.changesImage(c.restarts(stop))
	c.moves()
	c.isPaused()
	c.isUnreachable()
	at := c.updated()
	c.annotate(contract.AnnotationRollout, "")
	c.isGone()
	c.behind(0)
	c.reports("True", contract.ReasonConfigured)
	if got := c.updated(); !slices.Equal(got, at) {
		t.Errorf("the records of Machines are %v, were %v", got, at)
	}
	c.UseProxy(map[string]string{"httpProxy": proxyURL, "noProxy": "later.example.com"})
	c.behind(4)
	c.isDeleted()
}

// failsOnOneNode changes the password, has it fail on one node, and then corrects it.
func (c *followed) failsOnOneNode() {
	t := c.T
	t.Helper()
	before, _ := c.version("prod-proxy-files", nodeImage)
	c.UseProxy(map[string]string{"httpProxy": proxyURL, "username": "u", "password": "other"})
	eventually(t, "another version", func() string { // no node begins meanwhile
		if c.fails, _ = c.version("prod-proxy-files", nodeImage); c.fails == before {
			return before
		}
		return ""
	})
	c.says = "applying\n\x1b[31mthe proxy refuses %s \u202e{{\"$(id)\n\n"
	c.reports("False", inplace.ReasonInPlaceFailed, `: [31mthe proxy refuses %s {{"$(id); it keeps its turn since `,
		"; delete Pod kube-system/", "0 of 5 nodes have the current files of Secret prod-proxy-files, and 1 failed")
	c.behind(4)
	if message := vocabulary.Condition(c.Cluster()).Message; strings.ContainsAny(message, "\x1b\u202e") {
		t.Errorf("message %q", message)
	}
	if got := c.began[c.fails]; len(got) != 1 {
		t.Errorf("a version that fails has begun on %v", got)
	}
	c.UseProxy(map[string]string{"httpProxy": proxyURL, "username": "u", "password": "corrected"})
	c.reports("True", contract.ReasonConfigured)
	c.behind(0)
	if at := c.updated(); at[0] == "" || at[0] != at[1] || at[0] != at[2] {
		t.Errorf("the records of Machines are %v", at)
	}
}

// drifts has somebody change files on a node, and then back.
func (c *followed) drifts() {
	c.T.Helper()
	c.drifted = "node-b"
	c.reports("False", inplace.ReasonInPlaceFailed, "node node-b: /etc/capi-proxy-patcher/proxy.env differs; delete Pod kube-system/")
	c.drifted = ""
	c.reports("True", contract.ReasonConfigured)
	c.behind(0)
}

// restarts restarts the manager, whose condition stays, and returns what ends it.
func (c *followed) restarts(stop func()) func() {
	c.T.Helper()
	before, versions := vocabulary.Condition(c.Cluster()), c.versionsOf()
	stop()
	stop = manage(c.T, c.Namespace, "--node-image", nodeImage)
	c.fence("after-restart")
	if got := vocabulary.Condition(c.Cluster()); got != before {
		c.T.Errorf("after a restart the condition is %+v, was %+v", got, before)
	}
	if got := c.versionsOf(); !slices.Equal(got, versions) { // the test writes while it waits in behind
		c.T.Errorf("a restart has written: versions are %v, were %v", got, versions)
	}
	c.behind(0)
	return stop
}

// changesImage restarts the manager without an image, and then with another one, which is another version.
func (c *followed) changesImage(stop func()) {
	c.T.Helper()
	before, _ := c.has("prod-proxy-files")
	stop()
	stop = manage(c.T, c.Namespace)
	c.reports("False", inplace.ReasonInPlaceNotInstalled, "the manager runs without --node-image")
	if kept := (&appsv1.DaemonSet{}); !get(c.inPlace, before.Name, kept) || kept.Generation != before.Generation {
		c.T.Errorf("without an image the DaemonSet changes:\n%s", cmp.Diff(before.Spec, kept.Spec))
	}
	stop()
	stop = manage(c.T, c.Namespace, "--node-image", otherNodeImage)
	if set, _ := c.hasWith("prod-proxy-files", otherNodeImage); set.Spec.Template.Spec.InitContainers[0].Image != otherNodeImage {
		c.T.Errorf("the image is %s", set.Spec.Template.Spec.InitContainers[0].Image)
	}
	c.reports("True", contract.ReasonConfigured)
	stop()
	manage(c.T, c.Namespace, "--node-image", nodeImage)
	c.has("prod-proxy-files")
	c.reports("True", contract.ReasonConfigured)
}

// versionsOf returns the versions of what is written for updates in place.
func (c *followed) versionsOf() []string {
	c.T.Helper()
	versions := []string{c.Cluster().ResourceVersion}
	for _, name := range nodeNames() {
		config := vocabulary.Fetch(c.T, shared.Client, c.Namespace, name, &bootstrapv1.KubeadmConfig{})
		node := vocabulary.Fetch(c.T, c.remote(), "", name, &corev1.Node{})
		versions = append(versions, config.ResourceVersion, node.ResourceVersion)
	}
	return versions
}

// moves replaces Machines and their KubeadmConfigs by others with the same names, as clusterctl move does.
func (c *followed) moves() {
	t := c.T
	t.Helper()
	at := c.updated()
	for i, name := range nodeNames() {
		config := vocabulary.Fetch(t, shared.Client, c.Namespace, name, &bootstrapv1.KubeadmConfig{})
		for _, object := range []client.Object{
			config, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}},
		} {
			if err := shared.Client.Delete(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		c.joins(name, config.Spec)
		moved := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
		vocabulary.Change(t, shared.Client, moved, func(config *bootstrapv1.KubeadmConfig) {
			config.Annotations = map[string]string{contract.AnnotationUpdatedAt: at[i]}
		})
	}
	c.fence("after-move")
	c.reports("True", contract.ReasonConfigured)
	c.behind(0)
	eventually(t, "labels of all nodes", func() string { // one that was missing for a moment has lost it
		c.round()
		if got := c.labels(); len(got) != len(nodeNames())+2 {
			return fmt.Sprint(got)
		}
		return ""
	})
}

// isPaused pauses the Cluster, for which nothing changes meanwhile.
func (c *followed) isPaused() {
	c.T.Helper()
	before, version := c.has("prod-proxy-files")
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = new(true) })
	c.UseProxy(map[string]string{"httpProxy": otherProxyURL})
	c.annotate(contract.AnnotationRollout, "")
	c.fence("paused")
	now := &appsv1.DaemonSet{}
	if !get(c.inPlace, before.Name, now) || now.Generation != before.Generation || len(c.labels()) != len(nodeNames())+2 {
		c.T.Errorf("for a paused Cluster the DaemonSet changes:\n%s", cmp.Diff(before.Spec, now.Spec))
	}
	c.annotate(contract.AnnotationRollout, inplace.RolloutInPlace)
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = nil })
	eventually(c.T, "what was asked for while it was paused", func() string {
		c.round()
		if get(c.inPlace, before.Name, now); versionIn(now) == version {
			return version
		}
		return ""
	})
	c.reports("True", contract.ReasonConfigured)
}

// isUnreachable takes the workload cluster away for a while.
func (c *followed) isUnreachable() {
	c.T.Helper()
	if err := c.workload.KillServer(); err != nil {
		c.T.Fatal(err)
	}
	c.reports("Unknown", inplace.ReasonInPlaceUnknown, "the workload cluster does not answer with the kubeconfig of Secret "+
		c.Namespace+"/prod-kubeconfig")
	if err := c.workload.StartServer(); err != nil {
		c.T.Fatal(err)
	}
	c.reports("True", contract.ReasonConfigured)
}

// isDeleted deletes the Cluster while its workload cluster has files and is away. Nothing of the product holds it.
func (c *followed) isDeleted() {
	t := c.T
	t.Helper()
	c.annotate(contract.AnnotationRollout, inplace.RolloutInPlace)
	c.reports("True", contract.ReasonConfigured)
	c.leave()
	const own = "example.com/hold"
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Finalizers = []string{own} })
	if err := shared.Client.Delete(t.Context(), c.Cluster()); err != nil {
		t.Fatal(err)
	}
	c.annotate(contract.AnnotationRollout, "")
	c.fence("deleted")
	if got := c.Cluster().Finalizers; !slices.Equal(got, []string{own}) {
		t.Errorf("finalizers of a deleted Cluster are %v", got)
	}
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Finalizers = nil })
}

// TestInPlace_LeavesOtherClustersAlone has a server stand in for a workload cluster, and counts who asks it.
func TestInPlace_LeavesOtherClustersAlone(t *testing.T) {
	t.Parallel()
	if shared == nil {
		t.Skipf("%s is not set", mgmt.AssetsVariable)
	}
	var mutex sync.Mutex
	var agents []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		defer mutex.Unlock()
		agents = append(agents, r.UserAgent())
		http.Error(w, "nobody is at home", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	asked := func() string {
		mutex.Lock()
		defer mutex.Unlock()
		return strings.Join(agents, "\n")
	}
	ns := vocabulary.Namespace(t, shared.Client, "quiet-")
	manage(t, ns, "--node-image", nodeImage)
	c := inPlace{publisher: newPublisher(t, ns, "quiet", "annotations", map[string]string{"httpProxy": proxyURL})}
	c.connectTo([]byte(fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, "+
		"user: u}}]\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: u, user: "+
		"{token: t}}]\n", server.URL, base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))))
	c.Eventually(output.ReasonPublished)
	c.UseProxy(map[string]string{"httpProxy": otherProxyURL})
	c.annotate(contract.AnnotationRollout, contract.RolloutImmediate)
	c.fence("after-immediate")
	if got := asked(); got != "" {
		t.Errorf("a workload cluster of a Cluster that does not ask was asked by %s", got)
	}
	c.joinsAs("cp", bootstrapv1.KubeadmConfigSpec{}, clusterv1.MachineControlPlaneLabel, "")
	c.annotate(contract.AnnotationRollout, inplace.RolloutInPlace)
	eventually(t, "the workload cluster asked", func() string {
		if got := asked(); !strings.HasPrefix(got, contract.Name+"/") {
			return "by " + got
		}
		return ""
	})
}
