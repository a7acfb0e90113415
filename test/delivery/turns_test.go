package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// crowd is a pool of twelve nodes that booted without the proxy, with the DaemonSet controller of Kubernetes.
type crowd struct {
	followed

	nodes int
}

// poolFiles is the generated Secret of the pool when it has a proxy Secret of its own.
const poolFiles = "prod.prod-md.md.proxy-files"

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{nodes: 12}
	c.inPlace, _ = newInPlace(t, func(in inPlace) {
		c.agents = newAgents(t, in.remote)
		controllers(t, in.workload)
		o := vocabulary.NewClassic(in.Namespace, in.Name, in.Name)
		vocabulary.Create(t, shared.Client, vocabulary.MachineTemplate(in.Namespace, in.Name), o.Template, o.Deployment,
			vocabulary.ProxySecret(in.Namespace, "pool", map[string]string{"httpProxy": otherProxyURL}))
		for i := range c.nodes {
			name := fmt.Sprintf("w-%02d", i)
			in.joins(name, bootstrapv1.KubeadmConfigSpec{PreKubeadmCommands: []string{"true"}})
			newNode(t, in.remote, name)
		}
	})
	return c
}

// settles waits until all nodes have the present version of a generated Secret, of which no more than a bound had a turn
// at once.
func (c *crowd) settles(what, generated string, bound int) {
	c.t.Helper()
	eventually(c.t, what, func() string {
		c.round()
		version, _ := c.version(generated, nodeImage)
		done := 0
		for _, has := range c.agents.has {
			if has == version {
				done++
			}
		}
		condition := vocabulary.Condition(c.Cluster())
		if done < c.nodes || len(c.labels()) != c.nodes || condition.Reason != contract.ReasonConfigured {
			return fmt.Sprintf("%d nodes: %s", done, condition.Message)
		}
		return ""
	})
	c.wantMost(what, bound)
}

// wantMost fails if more nodes had a turn at once than may.
func (c *crowd) wantMost(what string, bound int) {
	c.t.Helper()
	if c.most > bound || c.most == 0 {
		c.t.Errorf("%s: %d nodes had a turn at once, bound %d", what, c.most, bound)
	}
	c.most = 0
}

// TestTurns_OfTwelveNodes updates nodes that fail, and are down before, in and after their turn, and restores them. Tests
// of package inplace have other decisions, and those of package agent how a node takes a turn.
func TestTurns_OfTwelveNodes(t *testing.T) {
	t.Parallel()
	if shared == nil {
		t.Skip("there is no API server")
	}
	c := newCrowd(t)
	c.settles("twelve nodes behind", "prod-proxy-files", 1)
	c.annotate(inplace.AnnotationInPlaceMaxUnavailable, "3")
	c.secretOfPool("pool")
	c.settles("a pool changes its Secret", poolFiles, 3)

	c.fails, c.says = c.changesPool("http://broken.example.com:3128"), "the proxy refuses it"
	c.reports("False", inplace.ReasonInPlaceFailed, "the proxy refuses it; it keeps its turn since ", "0 of 12 nodes", "and 3 failed")
	c.fence("after-failure")
	for range 20 {
		c.round()
	}
	if began := c.began[c.fails]; len(began) != 3 {
		t.Errorf("a version that fails has begun on %v", began)
	}
	c.wantMost("a version that fails", 3)
	c.changesPool("http://correct.example.com:3128")
	c.settles("a corrected version", poolFiles, 3)

	c.down["w-03"] = true
	c.changesPool("http://next.example.com:3128")
	c.reports("Unknown", inplace.ReasonInPlaceProgressing, "11 of 12 nodes have the current files of Secret "+poolFiles+"; waiting for w-03")
	c.wantMost("a node that is down before its turn", 3)
	delete(c.down, "w-03")
	c.settles("a node that is back", poolFiles, 3)

	c.annotate(inplace.AnnotationInPlaceMaxUnavailable, "")
	c.settles("another number of turns", poolFiles, 1)
	gone := c.goesDownWhenDone(c.changesPool("http://after.example.com:3128"))
	c.settles("the others, when a node goes down after its turn", poolFiles, 1)
	delete(c.down, gone)
	c.dies = true
	c.changesPool("http://last.example.com:3128")
	eventually(t, "a node that goes down in its turn", func() string {
		if c.round(); len(c.down) == 0 {
			return "none is down"
		}
		return ""
	})
	var dead string
	for dead = range c.down { //nolint:revive // there is one
	}
	c.reports("Unknown", inplace.ReasonInPlaceProgressing, "0 of 12 nodes", "it is the turn of "+dead+" since ")
	c.wantMost("a node that goes down in its turn", 1)
	c.loses(dead)
	c.settles("the others, when its Node is deleted", poolFiles, 1)
	c.restores()
}

// goesDownWhenDone takes the first node down whose Pod says that it has a version, and returns it.
func (c *crowd) goesDownWhenDone(version string) (node string) {
	c.t.Helper()
	eventually(c.t, "a node with "+version, func() string {
		c.round()
		var pods corev1.PodList
		if err := c.remote().List(c.t.Context(), &pods, client.MatchingLabels{inplace.LabelFilesVersion: version}); err != nil {
			return err.Error()
		}
		for i := range pods.Items {
			if summary(&pods.Items[i].Status) == summary(runningStatus()) {
				node = nodeOf(&pods.Items[i])
				c.down[node] = true
				return ""
			}
		}
		return "none"
	})
	if done := len(c.began[version]); done == c.nodes {
		c.t.Error("all nodes have had their turn, so this shows nothing")
	}
	return node
}

// restores disables the Cluster while a node is down, enables it again, and ends updates in place.
func (c *crowd) restores() {
	t := c.T
	t.Helper()
	down := "w-05"
	if _, there := c.agents.has[down]; !there { // it was lost
		down = "w-06"
	}
	c.down[down] = true
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Labels[contract.LabelEnabled] = contract.LabelDisabledValue })
	c.reports("Unknown", inplace.ReasonInPlaceProgressing, fmt.Sprintf("%d of %d nodes are restored; waiting for %s", c.nodes-1, c.nodes, down))
	c.wantMost("nodes that are restored", 1)
	if got := c.Cluster().Annotations[inplace.AnnotationInPlaceApplied]; got != contract.AppliedValue {
		t.Errorf("while a node is down the Cluster has %q", got)
	}
	delete(c.down, down)
	eventually(t, "all nodes restored", func() string {
		c.round()
		return c.Cluster().Annotations[inplace.AnnotationInPlaceApplied]
	})
	c.isGone()
	configs := &bootstrapv1.KubeadmConfigList{}
	if err := shared.Client.List(t.Context(), configs, client.InNamespace(c.Namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range configs.Items {
		if files, is := configs.Items[i].Annotations[contract.AnnotationUpdatedFiles]; is {
			t.Errorf("a Machine without files is recorded with %q", files)
		}
	}
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Labels[contract.LabelEnabled] = contract.LabelEnabledValue })
	c.most = 0
	c.settles("on again", poolFiles, 1)
	c.secretOfPool("")
	c.settles("a pool without a Secret of its own", "prod-proxy-files", 1)
	eventually(t, "nothing of the pool", func() string {
		c.round()
		if set := (&appsv1.DaemonSet{}); get(c.inPlace, contract.Name+"-"+inplace.NodeLabel(poolFiles), set) {
			return set.Name
		}
		return ""
	})
	c.annotate(contract.AnnotationRollout, "")
	c.isGone()
}

// loses deletes a Node and its Machine.
func (c *crowd) loses(name string) {
	c.t.Helper()
	for _, object := range []client.Object{
		&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}},
		&bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}},
	} {
		if err := shared.Client.Delete(c.t.Context(), object); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := c.remote().Delete(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		c.t.Fatal(err)
	}
	delete(c.down, name)
	delete(c.agents.has, name)
	c.nodes--
}

// secretOfPool has the pool name a proxy Secret, or none for "".
func (c *crowd) secretOfPool(name string) {
	c.t.Helper()
	deployment := vocabulary.Fetch(c.t, shared.Client, c.Namespace, "prod-md", &clusterv1.MachineDeployment{})
	vocabulary.Change(c.t, shared.Client, deployment, func(d *clusterv1.MachineDeployment) {
		if d.Annotations = map[string]string{contract.AnnotationSecret: name}; name == "" {
			d.Annotations = nil
		}
	})
}

// changesPool changes the proxy of the pool, and returns its next version.
func (c *crowd) changesPool(proxy string) (version string) {
	c.t.Helper()
	before, _ := c.version(poolFiles, nodeImage)
	secret := vocabulary.Fetch(c.t, shared.Client, c.Namespace, "pool", &corev1.Secret{})
	vocabulary.Change(c.t, shared.Client, secret, func(s *corev1.Secret) {
		s.Data, s.StringData = nil, map[string]string{"httpProxy": proxy}
	})
	eventually(c.t, "another version", func() string {
		version, _ = c.version(poolFiles, nodeImage)
		if version == before || !strings.HasPrefix(version, inplace.NodeLabel(poolFiles)+"-") {
			return version
		}
		return ""
	})
	c.most = 0
	if slices.Contains([]string{"", before}, version) {
		c.t.Fatal("there is no next version")
	}
	return version
}
