package inplace

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

// Capability changes running nodes. It implements kit.Capability and manager.Extension.
type Capability struct{ pods NodePods }

// New returns the capability, and adds its names to those of the program.
func New() *Capability {
	contract.Add(contract.Capability{
		Name:        "inplace",
		Annotations: []contract.Annotation{{Key: AnnotationInPlaceMaxUnavailable, Check: checkSlots}},
		Applied:     []string{AnnotationInPlaceApplied},
		Rollouts:    []string{RolloutInPlace},
		Reasons: []contract.Reason{
			{
				Name: ReasonInPlaceNotInstalled, Status: contract.StatusFalse, Task: contract.TaskAct,
				After: contract.ReasonNameTaken,
			},
			{
				Name: ReasonInPlaceFailed, Status: contract.StatusFalse, Task: contract.TaskAct,
				After: contract.ReasonTemplateNotSupported, Remote: true,
			},
			{
				Name: ReasonInPlaceUnknown, Status: contract.StatusUnknown, Task: contract.TaskWait,
				After: contract.ReasonWaitingForRollout, Remote: true,
			},
			{
				Name: ReasonInPlaceProgressing, Status: contract.StatusUnknown, Task: contract.TaskWait,
				After: ReasonInPlaceUnknown, Remote: true,
			},
		},
	})
	return &Capability{}
}

// Commands implements kit.Capability.
func (*Capability) Commands(streams kit.Streams, _ []kit.Capability) []*cobra.Command {
	return []*cobra.Command{newNode(streams)}
}

// Probe is the command that asks from a node, for command check.
func (*Capability) Probe() []string { return []string{"node", "probe"} }

// AddFlags implements manager.Extension.
func (c *Capability) AddFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("clusters")
	f.StringVar(&c.pods.Image, "node-image", "", "image of this program as nodes of workload clusters pull it: serves "+
		"Clusters with rollout "+RolloutInPlace+"; empty: not served")
	f.StringVar(&c.pods.PullSecret, "node-image-pull-secret", "", "Secret of type kubernetes.io/dockerconfigjson in "+
		"namespace "+NodesNamespace+" of workload clusters, with which nodes pull --node-image; empty: none")
	f.StringVar(&c.pods.PullPolicy, "node-image-pull-policy", string(corev1.PullAlways), "when a node with new files "+
		"pulls --node-image: "+string(corev1.PullAlways)+" proves the files, or "+string(corev1.PullIfNotPresent)+
		" for nodes that have the image and no registry")
}

// Check implements manager.Extension.
func (c *Capability) Check() error {
	switch policy := corev1.PullPolicy(c.pods.PullPolicy); policy {
	case corev1.PullAlways, corev1.PullIfNotPresent:
		return nil
	default:
		return fmt.Errorf("--node-image-pull-policy %q: neither %s nor %s", policy, corev1.PullAlways,
			corev1.PullIfNotPresent)
	}
}

// SetupWithManager implements manager.Extension.
func (c *Capability) SetupWithManager(_ context.Context, mgr ctrl.Manager, core manager.Core) (controller.Step, error) {
	clusters := remote.NewClusters(remote.Connect(mgr.GetAPIReader()), core.Now)
	return NewStep(clusters, mgr.GetAPIReader(), c.pods, core.Now), nil
}
