//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
)

// TestProduct_IsAway kills the product in the middle of a rollout, and creates clusters while it is away and while its
// webhooks come and go. It is not parallel.
func TestProduct_IsAway(t *testing.T) {
	w := start(t)
	rolling := newCluster(t, w, options{controlPlanes: 3, workers: 1})
	rolling.apply(t)
	machines := rolling.waitRunning(t, 5)
	rolling.roll(t, "kubeadmcontrolplane/"+rolling.controlPlaneName())
	eventually(t, func() error {
		if len(rolling.boots()) < 6 {
			return errors.New("the rollout has not begun")
		}
		return nil
	})

	// A Service has no endpoint while the product is away.
	if err := w.product.RemoveWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.product.Kill()
	w.startAtTheEnd(t)
	waiting := &cluster{world: w, namespace: rolling.namespace, name: "waiting"}
	waiting.manifest = annotated("LocalCluster", waiting.name, infra.HoldEndpoint+`: ""`)(
		waiting.generate(t, waiting.name, options{controlPlanes: 1, workers: 1}))
	waiting.apply(t)
	t.Run("Machines that come up meanwhile are counted and stay", func(t *testing.T) {
		s := newStorm(t, w, max(*clusters/3, 1))
		s.apply(t)
		eventually(t, func() error {
			if !slices.ContainsFunc(s.boots(), func(b infra.Boot) bool { return !hasProxy(b) }) {
				return errors.New("no Machine has come up without the proxy")
			}
			return nil
		})
		if err := w.product.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop, stopped := make(chan struct{}), make(chan error)
		go func() { stopped <- s.interruptWebhooks(t, stop) }()
		s.waitRunning(t)
		close(stop)
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		s.calm(t)
		without := 0
		for _, c := range s.clusters {
			missing := c.withoutProxy(t)
			c.waitBehind(t, missing)
			without += missing
		}
		if without == 0 {
			t.Error("every Machine has the proxy: there was nothing to report")
		}
		results.note("%d Clusters while the product was away at first and the webhooks a third of the time: "+
			"%d Machines without the proxy, as the conditions say, 0 replaced", len(s.clusters), without)
	})
	t.Run("a rollout goes on and is not begun again", func(t *testing.T) {
		rolled := rolling.waitReplaced(t, machines, 5, rolling.ofControlPlane)
		rolling.waitControlPlaneStable(t)
		rolling.staysCalm(t, rolled)
		// Each Machine of the control plane was replaced once, with the proxy.
		rolling.checkBoots(t, 8, want{proxy: proxyURL}, everyBoot)
		rolling.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	})
	t.Run("a cluster that waited for its endpoint gets the proxy", func(t *testing.T) {
		waiting.waitCondition(t, metav1.ConditionUnknown, contract.ReasonWaitingForEndpoint)
		waiting.releaseEndpoint(t)
		running := waiting.waitRunning(t, 3)
		waiting.staysCalm(t, running)
		waiting.checkBoots(t, 3, want{proxy: proxyURL}, everyBoot)
	})
}

// startAtTheEnd starts the product when the test has ended, if it did not do that itself: other tests need it.
func (w *world) startAtTheEnd(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := w.product.Start(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, management.ErrRunning) {
			t.Error(err)
		}
	})
}

// newTarget starts another management cluster, with the product but not its hooks. Workload clusters stay where they
// are.
func newTarget(t *testing.T, w *world) *world {
	t.Helper()
	return newTargetOf(t, w, w.cluster.ClusterAPI)
}

// newTargetOf is newTarget with a version of Cluster API.
func newTargetOf(t *testing.T, w *world, api management.ClusterAPI) *world {
	t.Helper()
	target := newManagementOf(t, w, api)
	if err := target.start(t.Context(), func(step string) { t.Log(step) }); err != nil {
		t.Fatal(err)
	}
	return target
}

// turns has room for one of the tests that have a management cluster of their own, beside TestClusterctl. Each takes as
// much of the machine as the shared one, so that all of them at once would take minutes for what takes seconds.
var turns = make(chan struct{}, 1)

// takeTurn waits for a turn of a test with a management cluster of its own, which lasts until the test ends.
func takeTurn(t *testing.T) {
	t.Helper()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// newManagement starts another management cluster, with Cluster API and nothing else. The shared one has the feature
// gates of most users, this one InPlaceUpdates too. The test has taken a turn.
func newManagement(t *testing.T, w *world) *world {
	t.Helper()
	return newManagementOf(t, w, w.cluster.ClusterAPI)
}

// newManagementOf is newManagement with a version of Cluster API.
func newManagementOf(t *testing.T, w *world, api management.ClusterAPI) *world {
	t.Helper()
	logs, err := os.MkdirTemp(w.cluster.Logs, namespaceOf(t)+"-") //nolint:usetesting // kept with the other logs
	if err != nil {
		t.Fatal(err)
	}
	progress := func(step string) { t.Log(step) }
	cluster, err := management.Start(t.Context(), management.Options{
		Root: root, ClusterAPI: api, Logs: logs, CRDs: infra.CRDs(), FeatureGates: "InPlaceUpdates=true",
		Progress: progress,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &world{cluster: cluster, binary: w.binary, workloads: w.workloads}
}
