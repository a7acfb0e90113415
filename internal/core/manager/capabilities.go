package manager

import (
	"context"
	"fmt"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// Extension is a capability that runs in the manager.
type Extension interface {
	// AddFlags adds its flags to those of command manager.
	AddFlags(groups *cliflag.NamedFlagSets)
	// Check says which of its flags cannot be used.
	Check() error
	// SetupWithManager adds its controllers to mgr, and returns what it adds to the passes over Clusters, nil if nothing.
	SetupWithManager(ctx context.Context, mgr ctrl.Manager, core Core) (controller.Step, error)
}

// Core is what extensions share with the controller of the core.
type Core struct {
	Memory      *world.Memory
	Scope       settings.Scope
	Concurrency int
	Now         func() time.Time
}

// extend sets up the extensions, and returns their steps.
func (o Options) extend(ctx context.Context, mgr ctrl.Manager, core Core) (steps []controller.Step, err error) {
	for _, extension := range o.Extensions {
		step, err := extension.SetupWithManager(ctx, mgr, core)
		if err != nil {
			return nil, fmt.Errorf("setting up %T: %w", extension, err)
		}
		if step != nil {
			steps = append(steps, step)
		}
	}
	return steps, nil
}
