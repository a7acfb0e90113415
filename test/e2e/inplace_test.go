//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// updater is an extension for updates in place of Cluster API that claims files of KubeadmConfigs and nothing else, as
// the one that Cluster API tests itself with. It is busy with a Machine until it is released.
type updater struct{ asked, released atomic.Bool }

func (*updater) canUpdate(_ context.Context, request *runtimehooksv1.CanUpdateMachineRequest,
	response *runtimehooksv1.CanUpdateMachineResponse,
) {
	files, err := filesOf(request.Desired.BootstrapConfig)
	if err != nil {
		response.Status, response.Message = runtimehooksv1.ResponseStatusFailure, err.Error()
		return
	}
	response.Status = runtimehooksv1.ResponseStatusSuccess
	response.BootstrapConfigPatch = runtimehooksv1.Patch{
		PatchType: runtimehooksv1.JSONMergePatchType, Patch: fmt.Appendf(nil, `{"spec":{"files":%s}}`, files),
	}
}

// filesOf returns spec.files of a KubeadmConfig as JSON.
func filesOf(object runtime.RawExtension) ([]byte, error) {
	var config bootstrapv1.KubeadmConfig
	if err := json.Unmarshal(object.Raw, &config); err != nil {
		return nil, err
	}
	return json.Marshal(config.Spec.Files)
}

func (u *updater) update(_ context.Context, _ *runtimehooksv1.UpdateMachineRequest,
	response *runtimehooksv1.UpdateMachineResponse,
) {
	u.asked.Store(true)
	response.Status = runtimehooksv1.ResponseStatusSuccess
	if !u.released.Load() {
		response.RetryAfterSeconds = 1
	}
}

// checkInPlaceUpdate gives a cluster with one control-plane node two more, which makes count Machines, and changes its
// targets while Cluster API has an extension that updates files in place. Cluster API has the feature gate InPlaceUpdates.
func (c *cluster) checkInPlaceUpdate(t *testing.T, count int) {
	t.Helper()
	extension := &updater{}
	if err := c.cluster.ServeExtension(t.Context(), "in-place", server.ExtensionHandler{
		Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", HandlerFunc: extension.canUpdate,
	}, server.ExtensionHandler{
		Hook: runtimehooksv1.UpdateMachine, Name: "update-machine", HandlerFunc: extension.update,
	}); err != nil {
		t.Fatal(err)
	}
	// Cluster API makes a new Machine first, unless that is forbidden, which it is for three or more only.
	c.kubectl(t, "", "patch", "kubeadmcontrolplane", c.controlPlaneName(), "--type", "merge", "-p",
		`{"spec":{"replicas":3,"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0}}}}}`)
	machines := c.waitRunning(t, count)
	c.waitControlPlaneStable(t)
	planes := identity{}
	for name, uid := range machines {
		if c.ofControlPlane(name) {
			planes[name] = uid
		}
	}

	// The change of a spec waits as without the gate.
	c.kubectl(t, "", "annotate", "--overwrite", "cluster", c.name, contract.AnnotationTargets+"=containerd,commands,trust")
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonWaitingForRollout)
	c.staysCalm(t, machines)

	c.kubectl(t, "", "annotate", "--overwrite", "cluster", c.name, contract.AnnotationRollout+"="+contract.RolloutImmediate)
	eventually(t, func() error {
		if !extension.asked.Load() {
			return errors.New("Cluster API has not begun to update a Machine in place")
		}
		return nil
	})
	// The KubeadmConfig of one Machine has the new files, and its node does not.
	eventually(t, func() error {
		var listed []string
		for _, name := range c.listed(t) {
			if c.ofControlPlane(name) {
				listed = append(listed, name)
			}
		}
		updating := 0
		for name := range planes {
			if !c.hasKubeletDropIn(t, name) {
				updating++
			}
		}
		if updating != 1 || !slices.Equal(listed, sorted(planes)) {
			return fmt.Errorf("%d KubeadmConfigs have the new files, want 1; status lists %v as behind, want %v", updating,
				listed, sorted(planes))
		}
		return nil
	})

	extension.released.Store(true)
	replaced := c.waitReplaced(t, machines, count, func(name string) bool { return !c.ofControlPlane(name) })
	c.waitBehind(t, 0)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	wantPlan(t, c.plan(t, ""), nil, nil)
	c.staysCalm(t, replaced)
	for name, uid := range planes {
		if replaced[name] != uid {
			t.Errorf("Machine %s was replaced", name)
		}
		if c.hasKubeletDropIn(t, name) {
			t.Errorf("the KubeadmConfig of Machine %s still has the drop-in for kubelet", name)
		}
	}
}

// hasKubeletDropIn reports whether the KubeadmConfig of a Machine has our file for kubelet.
func (c *cluster) hasKubeletDropIn(t *testing.T, name string) bool {
	t.Helper()
	machine := get[clusterv1.Machine](t, c, name)
	config := get[bootstrapv1.KubeadmConfig](t, c, machine.Spec.Bootstrap.ConfigRef.Name)
	return slices.ContainsFunc(config.Spec.Files, func(f bootstrapv1.File) bool {
		return strings.HasPrefix(f.Path, "/etc/systemd/system/kubelet.service.d/")
	})
}
