//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/nodedata"
)

func TestNewCluster(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, test := range []struct {
		name          string
		controlPlanes int
		variables     map[string]string
		scales        bool
	}{
		{name: "with cloud-init", controlPlanes: 3, scales: true},
		{name: "with ignition", controlPlanes: 1, variables: map[string]string{"BOOTSTRAP_FORMAT": "ignition"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, w, options{controlPlanes: test.controlPlanes, workers: 1, variables: test.variables})
			c.apply(t)
			machines := c.waitRunning(t, test.controlPlanes+2)
			c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
			c.staysCalm(t, machines)
			if tree := c.clusterctl(t, nil, "describe", "cluster", c.name, "--namespace", c.namespace, "--show-conditions",
				"all"); !strings.Contains(tree, contract.ConditionProxyConfigured) {
				t.Errorf("clusterctl describe does not show the condition:\n%s", tree)
			}
			// As many boots as Machines: none was replaced on the way.
			c.checkBoots(t, test.controlPlanes+2, want{proxy: proxyURL}, everyBoot)
			c.checkGenerated(t)
			if got := c.rewritten(t, c.specified(t)...); len(got) > 0 {
				t.Errorf("generations are %v: something was changed after it was admitted, by one of %+v", got, c.writes(t))
			}
			if test.scales {
				c.kubectl(t, "", "scale", "machinedeployment", c.poolName(0), c.poolName(1), "--replicas=2")
				scaled := c.waitRunning(t, test.controlPlanes+4)
				for name, uid := range machines {
					if scaled[name] != uid {
						t.Errorf("Machine %s was replaced", name)
					}
				}
				c.checkBoots(t, test.controlPlanes+4, want{proxy: proxyURL}, everyBoot)
				c.waitBehind(t, 0)
			}
		})
	}
}

func TestEndpoint_ArrivesLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{
		controlPlanes: 1, workers: 1, edit: func(manifest string) string { return gated(heldEndpoint(manifest)) },
	})
	c.apply(t)
	c.waitCondition(t, metav1.ConditionUnknown, contract.ReasonWaitingForEndpoint)
	c.waitAvailableNames(t, true)
	staysTrue(t, func() error {
		if endpoint := c.endpoint(t); endpoint != "" {
			return errors.New("the endpoint is known: the test does not test what it says")
		}
		if booted := len(c.boots()); booted > 0 {
			return fmt.Errorf("%d Machines came up before the endpoint was known", booted)
		}
		return nil
	})
	c.releaseEndpoint(t)
	machines := c.waitRunning(t, 3)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.waitAvailableNames(t, false)
	c.staysCalm(t, machines)
	c.checkBoots(t, 3, want{proxy: proxyURL}, everyBoot)
}

func TestLabelOnARunningCluster(t *testing.T) {
	t.Parallel()
	w := start(t)
	t.Run("on next rollout", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, w, options{controlPlanes: 1, workers: 1, edit: unlabelled})
		c.apply(t)
		machines := c.waitRunning(t, 3)
		c.checkBoots(t, 3, want{}, everyBoot)
		before := c.controlPlane(t)

		wantPlan(t, c.plan(t, c.labelled(t)), nil, machines)
		c.label(t)
		c.waitCondition(t, metav1.ConditionFalse, contract.ReasonWaitingForRollout)
		c.staysCalm(t, machines)
		if got := c.controlPlane(t); got.Generation != before.Generation {
			t.Errorf("the control plane has generation %d, had %d", got.Generation, before.Generation)
		}
		c.roll(t, "kubeadmcontrolplane/"+c.controlPlaneName())
		replaced := c.waitReplaced(t, machines, 3, c.ofControlPlane)
		c.checkBoots(t, 1, want{proxy: proxyURL}, since(machines))
		c.kubectl(t, "", "scale", "machinedeployment", c.poolName(0), "--replicas=2")
		c.waitRunning(t, 4)
		c.checkBoots(t, 1, want{proxy: proxyURL}, since(machines, replaced))
		c.waitBehind(t, 2) // the workers that have been there from the beginning
	})
	t.Run("immediate", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, w,
			options{
				controlPlanes: 3, workers: 1, edit: unlabelled,
				variables: map[string]string{"PROXY_ROLLOUT": contract.RolloutImmediate},
			})
		c.apply(t)
		machines := c.waitRunning(t, 5)

		wantPlan(t, c.plan(t, c.labelled(t)), machines, nil)
		c.label(t)
		replaced := c.waitReplaced(t, machines, 5, anyMachine)
		c.staysCalm(t, replaced)
		// Each Machine was replaced, and once.
		c.checkBoots(t, 5, want{proxy: proxyURL}, since(machines))
		c.waitBehind(t, 0)
	})
}

// handWritten edits a manifest to one whose user writes drop-ins of their own, at the paths of managed files.
func handWritten(manifest string) string {
	const files = "\n    files:\n" // those of the control plane
	if !strings.Contains(manifest, files) {
		panic("the manifest has no files")
	}
	var own strings.Builder
	for _, path := range handWrittenPaths {
		fmt.Fprintf(&own, "    - path: %s\n      content: |\n        [Service]\n        Environment=\"HTTP_PROXY=%s\"\n", path,
			handWrittenURL)
	}
	return strings.Replace(manifest, files, files+own.String(), 1)
}

const handWrittenURL = "http://old.corp.example:3128"

var handWrittenPaths = []string{
	"/etc/systemd/system/containerd.service.d/http-proxy.conf", "/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf",
}

// checkHandWritten checks that the Machines of the control plane came up with the drop-ins of the user and nothing of
// the product.
func (c *cluster) checkHandWritten(t *testing.T) {
	t.Helper()
	c.checkBoots(t, 1, want{}, func(b infra.Boot) bool {
		if !b.ControlPlane {
			return false
		}
		node, err := nodedata.Decode(b.Format, b.Data)
		if err != nil {
			t.Error(err)
			return false
		}
		for _, path := range handWrittenPaths {
			if f, found := node.File(path); !found || !strings.Contains(f.Content, handWrittenURL) {
				t.Errorf("%s: %s is %+v", b.Machine, path, f)
			}
		}
		return true
	})
}

// TestMigration_OfHandWrittenDropIns does what docs/migration.md says, on a running control plane: one manifest sets the
// label and removes the user's files. That is one rollout, and each Machine has one proxy or the other.
func TestMigration_OfHandWrittenDropIns(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, test := range []struct {
		name string
		// first has the label set in a write of its own, which is a conflict and changes nothing.
		first bool
	}{{"in one manifest", false}, {"the label first", true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, w, options{controlPlanes: 1, workers: 1})
			migrated := c.manifest
			c.manifest = handWritten(unlabelled(migrated))
			c.apply(t)
			machines := c.waitRunning(t, 3)
			c.checkHandWritten(t)
			before := c.controlPlane(t).Generation
			if test.first {
				c.label(t)
				c.waitCondition(t, metav1.ConditionFalse, contract.ReasonConflictingFile)
				c.staysCalm(t, machines)
			}

			c.manifest = migrated
			c.apply(t)
			if got := c.controlPlane(t); got.Generation != before+1 || !patch.IsPatched(api.Spec(&got.Spec.KubeadmConfigSpec)) {
				t.Errorf("generation %d after %d, files %+v; want one change with both", got.Generation, before,
					got.Spec.KubeadmConfigSpec.Files)
			}
			replaced := c.waitReplaced(t, machines, 3, c.ofControlPlane)
			c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
			c.staysCalm(t, replaced)
			c.checkBoots(t, 1, want{proxy: proxyURL}, since(machines))
			c.waitBehind(t, 2) // the workers
		})
	}
}
