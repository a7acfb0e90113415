//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
)

// TestFirstMachine_IsNotReplaced labels Clusters whose control plane has no Machine yet, while Cluster API works on it:
// Cluster API creates the first Machine from the KubeadmControlPlane that it has read, and replaces the Machine if that
// has been patched since.
func TestFirstMachine_IsNotReplaced(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, test := range []struct {
		name    string
		rollout string
	}{{"before", ""}, {"immediate", contract.RolloutImmediate}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, w, options{
				controlPlanes: 1, workers: 1, variables: rollout(test.rollout),
				edit: func(manifest string) string {
					return unlabelled(heldEndpoint(manifest))
				},
			})
			c.apply(t)
			c.waitWorkedOn(t)
			c.label(t)
			eventually(t, func() error { return c.isPatched(t) })
			c.releaseEndpoint(t)
			machines := c.waitRunning(t, 3)
			c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
			c.staysCalm(t, machines)
			c.checkBoots(t, 3, want{proxy: proxyURL}, everyBoot)
		})
	}
	t.Run("meanwhile", func(t *testing.T) {
		t.Parallel()
		const attempts = 5
		for attempt, missed := 1, true; missed; attempt++ {
			if attempt > attempts {
				t.Fatalf("the product did not see the label in time in %d attempts", attempts)
			}
			if !t.Run(strconv.Itoa(attempt), func(t *testing.T) { missed = labelledMeanwhile(t, w) }) {
				return
			}
		}
	})
}

// labelledMeanwhile labels a Cluster while Cluster API creates the first Machine of its control plane. It reports
// whether the product saw the label too late: the API server lets the creation wait for some seconds only, which a busy
// machine may exceed.
func labelledMeanwhile(t *testing.T, w *world) (missed bool) {
	t.Helper()
	c := newCluster(t, w, options{controlPlanes: 1, workers: 1, edit: unlabelled})
	gate := c.newGate(t)
	c.apply(t)
	eventually(t, func() error {
		if !closed(gate.Arrived) {
			return errors.New("Cluster API has not begun to create a Machine")
		}
		return nil
	})
	c.label(t)
	eventually(t, func() error {
		if controlPlane := c.controlPlane(t); c.isPatched(t) != nil && !plan.IsPausedByUs(controlPlane.Annotations) &&
			!closed(gate.Missed) {
			return errors.New("the product has not seen the label yet")
		}
		return nil
	})
	if closed(gate.Missed) {
		return true
	}
	gate.Open()
	machines := c.waitRunning(t, 3)
	c.staysCalm(t, machines)
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonWaitingForRollout)
	ofControlPlane := func(b infra.Boot) bool { return c.ofControlPlane(b.Machine) }
	c.checkBoots(t, 1, want{}, ofControlPlane)
	c.checkBoots(t, 2, want{proxy: proxyURL}, func(b infra.Boot) bool { return !ofControlPlane(b) })
	c.waitBehind(t, 1)
	if annotations := c.controlPlane(t).Annotations; plan.IsPausedByUs(annotations) {
		t.Errorf("the control plane is still paused: %v", annotations)
	}
	return false
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func rollout(value string) map[string]string {
	if value == "" {
		return nil
	}
	return map[string]string{"PROXY_ROLLOUT": value}
}

// waitWorkedOn waits until Cluster API works on the control plane of the cluster.
func (c *cluster) waitWorkedOn(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if conditions := c.controlPlane(t).Status.Conditions; !meta.IsStatusConditionFalse(conditions,
			clusterv1.PausedCondition) {
			return fmt.Errorf("Cluster API has not begun to work on the control plane: %+v", conditions)
		}
		return nil
	})
}

// isPatched returns an error if the control plane of the cluster does not carry the proxy, or is held back.
func (c *cluster) isPatched(t *testing.T) error {
	t.Helper()
	controlPlane := c.controlPlane(t)
	if !patch.IsPatched(api.Spec(&controlPlane.Spec.KubeadmConfigSpec)) ||
		plan.IsPausedByUs(controlPlane.Annotations) {
		return fmt.Errorf("the control plane does not carry the proxy, or is held back: %v", controlPlane.Annotations)
	}
	return nil
}

// newGate keeps the creation of infrastructure of Machines waiting. Cluster API has then read what it makes a Machine
// of, and has created nothing else.
func (c *cluster) newGate(t *testing.T) *management.Gate {
	t.Helper()
	example := &unstructured.Unstructured{}
	example.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	example.SetKind("LocalMachine")
	example.SetNamespace(c.namespace)
	example.SetName("example")
	gate, err := c.world.cluster.NewGate(t.Context(), "localmachines", example)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gate.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return gate
}
