//go:build e2e

package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// previousVariable names the minor version of Cluster API from which TestClusterAPIUpgrade upgrades.
const previousVariable = "CAPI_PROXY_PATCHER_E2E_CLUSTER_API_PREVIOUS"

// TestClusterAPIUpgrade upgrades Cluster API from the previous minor version to that of the run, under labelled
// Clusters. It has a management cluster of its own.
func TestClusterAPIUpgrade(t *testing.T) {
	t.Parallel()
	other := start(t)
	previous, err := management.FindClusterAPI(t.Context(), root, os.Getenv(previousVariable))
	if err != nil {
		t.Fatal(err)
	}
	if previous.Version == other.cluster.ClusterAPI.Version {
		t.Skipf("%s names Cluster API %s, which the run begins with", previousVariable, previous.Version)
	}
	takeTurn(t)
	w := newTargetOf(t, other, previous)
	if err := w.installHooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	classic := newCluster(t, w, options{controlPlanes: 1, workers: 1})
	classic.apply(t)
	waiting := &cluster{world: w, namespace: classic.namespace, name: "waiting"}
	waiting.manifest = unlabelled(waiting.generate(t, waiting.name, options{controlPlanes: 1, workers: 1}))
	waiting.apply(t)
	topology := &cluster{world: w, namespace: classic.namespace, name: "topology"}
	topology.manifest = topology.generate(t, topology.name, classy(options{controlPlanes: 1, workers: 1}))
	topology.applyClass(t, "proxied", nil)
	topology.apply(t)
	ofClassic, ofWaiting, ofTopology := classic.waitRunning(t, 3), waiting.waitRunning(t, 3), topology.waitRunning(t, 2)
	for _, c := range []*cluster{classic, topology} {
		c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	}
	waiting.label(t)
	waiting.waitCondition(t, metav1.ConditionFalse, contract.ReasonWaitingForRollout)
	topology.waitTopology(t)
	generations := func() []map[string]int64 {
		return []map[string]int64{
			vocabulary.Generations(classic.specified(t)...),
			vocabulary.Generations(waiting.specified(t)...),
			vocabulary.Generations(topology.owned(t)...),
		}
	}
	were := generations()

	if err := w.cluster.UpgradeClusterAPI(t.Context(), other.cluster.ClusterAPI); err != nil {
		t.Fatal(err)
	}
	t.Log("New managers are at work when a pool has grown. Its Machine has the proxy.")
	for c, before := range map[*cluster]identity{classic: ofClassic, waiting: ofWaiting} {
		c.kubectl(t, "", "scale", "machinedeployment", c.poolName(0), "--replicas=2")
		grown := c.waitRunning(t, len(before)+1)
		for name, uid := range before {
			if grown[name] != uid {
				t.Errorf("Machine %s of Cluster %s was replaced", name, c.name)
			}
		}
		c.checkBoots(t, 1, want{proxy: proxyURL}, since(before))
		c.staysCalm(t, grown)
	}
	created, err := w.cluster.Requests(func(r mgmt.Request) bool {
		return r.ResponseStatus.Code == http.StatusCreated && r.ObjectRef.Resource == "machines" &&
			r.ObjectRef.Namespace == classic.namespace &&
			strings.Contains(r.UserAgent, "/"+w.cluster.ClusterAPI.Version+" ")
	})
	if err != nil || len(created) != 2 {
		t.Errorf("Cluster API %s has created %d Machines, want 2; error %v", w.cluster.ClusterAPI.Version, len(created), err)
	}
	topology.waitTopology(t)
	topology.staysCalm(t, ofTopology)
	if diff := cmp.Diff(were, generations()); diff != "" {
		t.Errorf("generations (-before +after):\n%s", diff)
	}
	classic.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	topology.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	waiting.waitCondition(t, metav1.ConditionFalse, contract.ReasonWaitingForRollout)

	t.Log("What waits rolls with the user's next rollout, of the new managers.")
	before := waiting.waitRunning(t, 4)
	waiting.roll(t, "kubeadmcontrolplane/"+waiting.controlPlaneName())
	rolled := waiting.waitReplaced(t, before, 4, waiting.ofControlPlane)
	waiting.checkBoots(t, 1, want{proxy: proxyURL}, since(before))
	waiting.staysCalm(t, rolled)
}
