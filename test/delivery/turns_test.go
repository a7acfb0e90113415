package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// crowd is a pool of twelve nodes that booted without the proxy, with the DaemonSet controller of Kubernetes.
type crowd struct {
	followed

	// rounds are how often a kubelet has looked at a Pod.
	rounds map[types.UID]int
	// began are the nodes that a version has begun on.
	began map[string]map[string]bool
	// fails is the version that fails on every node.
	fails string
	// most are the most nodes that were changing at once.
	most int
}

// pool of the crowd has this generated Secret when it has a proxy Secret of its own.
const poolFiles = "prod.prod-md.md.proxy-files"

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{rounds: map[types.UID]int{}, began: map[string]map[string]bool{}}
	in, _ := newInPlace(t, func(in inPlace) {
		c.kubelets = kubelets{t: t, remote: in.remote, says: c.look}
		controllers(t, in.workload)
		o := vocabulary.NewClassic(in.Namespace, in.Name, in.Name)
		vocabulary.Create(t, shared.Client, vocabulary.MachineTemplate(in.Namespace, in.Name), o.Template, o.Deployment,
			vocabulary.ProxySecret(in.Namespace, "pool", map[string]string{"httpProxy": otherProxyURL}))
		for i := range 12 {
			name := fmt.Sprintf("w-%02d", i)
			in.joins(name, bootstrapv1.KubeadmConfigSpec{PreKubeadmCommands: []string{"true"}})
			newNode(t, in.remote, name)
		}
	})
	c.inPlace = in
	return c
}

// look is what a kubelet says of a Pod when it looks at it again.
func (c *crowd) look(pod *corev1.Pod, node string) *corev1.PodStatus {
	version := versionOf(pod)
	if c.began[version] == nil {
		c.began[version] = map[string]bool{}
	}
	if pod.Spec.NodeName != "" {
		c.began[version][node] = true
	}
	c.rounds[pod.UID]++
	switch {
	case c.rounds[pod.UID] < 4: //nolint:mnd // it takes a while
		return applyingStatus()
	case version == c.fails:
		return failedStatus("the proxy refuses it")
	}
	return podStatus(true, timeOfDay())
}

// turn has the kubelets look at their Pods, and counts the nodes that are changing.
func (c *crowd) turn() {
	c.t.Helper()
	c.work()
	var pods corev1.PodList
	if err := c.remote().List(c.t.Context(), &pods); err != nil {
		c.t.Fatal(err)
	}
	changing := map[string]bool{}
	for i := range pods.Items {
		ready := false
		for _, condition := range pods.Items[i].Status.Conditions {
			ready = ready || condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}
		if !ready && pods.Items[i].DeletionTimestamp.IsZero() {
			changing[nodeOf(&pods.Items[i])] = true
		}
	}
	c.most = max(c.most, len(changing))
}

// settles waits until all nodes have a version of a generated Secret that is not one before, and returns it.
func (c *crowd) settles(what, generated, before string, bound int) string {
	c.t.Helper()
	version := ""
	eventually(c.t, what, func() string {
		c.turn()
		if _, version = c.has(generated); version == before {
			return "the version before"
		}
		for _, label := range c.labels() {
			if name, has, _ := strings.Cut(label, " "); has != version {
				return name + " has " + has
			}
		}
		condition := vocabulary.Condition(c.Cluster())
		if len(c.labels()) != 12 || condition.Reason != contract.ReasonConfigured {
			return condition.Message
		}
		return ""
	})
	if c.most > bound || c.most == 0 {
		c.t.Errorf("%s: %d nodes were changing at once, bound %d", what, c.most, bound)
	}
	c.most = 0
	return version
}

// TestTurns_AreNeverMoreThanTheBound updates twelve nodes and restores them. Tests of package workload have the other
// decisions about turns.
func TestTurns_AreNeverMoreThanTheBound(t *testing.T) {
	t.Parallel()
	if shared == nil {
		t.Skip("there is no API server")
	}
	c := newCrowd(t)
	c.settles("twelve nodes behind", "prod-proxy-files", "", 1)
	c.annotate(contract.AnnotationInPlaceMaxUnavailable, "3")

	c.secretOfPool("pool")
	own := c.settles("a pool changes its Secret", poolFiles, "", 3)

	c.fails = c.changesPool(own, "http://broken.example.com:3128")
	eventually(t, "a version that fails", func() string {
		c.turn()
		if condition := vocabulary.Condition(c.Cluster()); condition.Reason != contract.ReasonInPlaceFailed {
			return condition.Reason + ": " + condition.Message
		}
		return ""
	})
	c.fence("after-failure")
	for range 10 {
		c.turn()
	}
	if began := c.began[c.fails]; len(began) != 1 || c.most != 1 {
		t.Errorf("a version that fails has begun on %v, %d at once", began, c.most)
	}
	c.most = 0
	corrected := c.changesPool(c.fails, "http://correct.example.com:3128")
	c.settles("a corrected version", poolFiles, c.fails, 3)

	since := timeOfDay().Add(-time.Hour)
	turnsReady(t, c.remote(), "w-03", false, since)
	c.changesPool(corrected, "http://last.example.com:3128")
	eventually(t, "a node that is not ready is not waited for", func() string {
		c.turn()
		condition := vocabulary.Condition(c.Cluster())
		const want = "11 of 12 nodes have the current files of Secret " + poolFiles + "; not ready, and not waited for: w-03"
		if !strings.Contains(condition.Message, want) {
			return condition.Message
		}
		return ""
	})
	turnsReady(t, c.remote(), "w-03", true, timeOfDay())
	c.settles("a node that is back", poolFiles, corrected, 3)
	c.restores()
}

// restores disables the Cluster while a node is away.
func (c *crowd) restores() {
	t := c.T
	t.Helper()
	data, err := patch.NodeData(nil, patch.Recipe{})
	if err != nil {
		t.Fatal(err)
	}
	removal := publish.NodeFiles{
		Cluster: c.Name, Secret: "prod-proxy-files", Data: data, Key: []byte(contract.RestoredValue), Image: nodeImage,
		PullPolicy: string(corev1.PullIfNotPresent),
	}.Version()
	reports := func(what, reason, part string) {
		eventually(t, what, func() string {
			c.turn()
			condition := vocabulary.Condition(c.Cluster())
			if condition.Reason != reason || !strings.Contains(condition.Message, part) {
				return condition.Reason + ": " + condition.Message
			}
			return ""
		})
	}
	c.fails, c.most = "", 0
	turnsReady(t, c.remote(), "w-03", false, timeOfDay().Add(-time.Hour))
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Labels[contract.LabelEnabled] = contract.LabelDisabledValue })
	reports("a node that is away", contract.ReasonInPlaceProgressing,
		"11 of 12 nodes are restored; not ready, and not waited for: w-03")
	if c.most > 3 {
		t.Errorf("%d nodes were restored at once", c.most)
	}
	if got := c.Cluster().Annotations[contract.AnnotationApplied]; got != contract.AppliedValue {
		t.Errorf("while a node is away the Cluster has %q", got)
	}
	turnsReady(t, c.remote(), "w-03", true, timeOfDay())
	reports("all nodes restored", vocabulary.NoCondition, "")
	if began := c.began[removal]; len(began) != 12 {
		t.Errorf("%s has begun on %v", removal, began)
	}
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
}

// secretOfPool has the pool name a proxy Secret.
func (c *crowd) secretOfPool(name string) {
	c.t.Helper()
	deployment := vocabulary.Fetch(c.t, shared.Client, c.Namespace, "prod-md", &clusterv1.MachineDeployment{})
	vocabulary.Change(c.t, shared.Client, deployment, func(d *clusterv1.MachineDeployment) {
		d.Annotations = map[string]string{contract.AnnotationSecret: name}
	})
}

// changesPool changes the proxy of the pool, and returns its next version.
func (c *crowd) changesPool(before, proxy string) (version string) {
	c.t.Helper()
	secret := vocabulary.Fetch(c.t, shared.Client, c.Namespace, "pool", &corev1.Secret{})
	vocabulary.Change(c.t, shared.Client, secret, func(s *corev1.Secret) {
		s.Data, s.StringData = nil, map[string]string{"httpProxy": proxy}
	})
	eventually(c.t, "another version", func() string {
		if version, _ = c.version(poolFiles, nodeImage); version == before || publish.NodeLabelOf(version) == "" {
			return version
		}
		return ""
	})
	return version
}
