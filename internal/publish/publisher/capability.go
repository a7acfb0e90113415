package publisher

import (
	"context"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

// Capability publishes outputs. It implements kit.Capability and manager.Extension.
type Capability struct{}

// NewCapability returns the capability, and adds its names to those of the program.
func NewCapability() Capability {
	contract.Add(contract.Capability{
		Name:        "publish",
		Annotations: []contract.Annotation{{Key: contract.AnnotationPublish}, {Key: contract.AnnotationPublishCredentials}},
		Records: []string{
			contract.AnnotationHTTPProxy, contract.AnnotationHTTPSProxy, contract.AnnotationNoProxy,
			contract.AnnotationApplied,
		},
		Condition: contract.ConditionProxyPublished,
		Reasons: []contract.Reason{
			{Name: contract.ReasonPublished, Status: contract.StatusTrue, Task: contract.TaskNone, After: contract.ReasonConfigured},
			{Name: contract.ReasonInvalidOutput, Status: contract.StatusFalse, Task: contract.TaskCorrect, After: contract.ReasonInternalError},
			{Name: contract.ReasonCredentialsWithheld, Status: contract.StatusFalse, Task: contract.TaskAct, After: contract.ReasonNameTaken},
			{Name: contract.ReasonKubernetesTooOld, Status: contract.StatusFalse, Task: contract.TaskAct, After: contract.ReasonCredentialsWithheld},
			{Name: contract.ReasonTooLarge, Status: contract.StatusFalse, Task: contract.TaskAct, After: contract.ReasonKubernetesTooOld},
			{Name: contract.ReasonDeliveryFailed, Status: contract.StatusFalse, Task: contract.TaskAct, After: contract.ReasonTooLarge},
			{Name: contract.ReasonDelivering, Status: contract.StatusUnknown, Task: contract.TaskWait, After: contract.ReasonConfiguring},
			{Name: contract.ReasonWithdrawing, Status: contract.StatusUnknown, Task: contract.TaskWait, After: contract.ReasonDelivering},
		},
	})
	return Capability{}
}

// Commands implements kit.Capability.
func (Capability) Commands(kit.Streams, []kit.Capability) []*cobra.Command { return nil }

// AddFlags implements manager.Extension.
func (Capability) AddFlags(*cliflag.NamedFlagSets) {}

// Check implements manager.Extension.
func (Capability) Check() error { return nil }

// SetupWithManager implements manager.Extension.
func (Capability) SetupWithManager(_ context.Context, mgr ctrl.Manager, core manager.Core) (controller.Step, error) {
	outputs, err := New(Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Memory: core.Memory,
		Applier: remote.NewApplier(remote.NewClusters(remote.Connect(mgr.GetAPIReader()), core.Now)),
		Scope:   core.Scope, Now: core.Now, Concurrency: core.Concurrency,
	})
	if err != nil {
		return nil, err
	}
	return nil, outputs.SetupWithManager(mgr)
}
