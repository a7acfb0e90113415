// Package fleet is the capability to look at the Clusters of a management cluster: commands status and plan.
package fleet

import (
	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// Capability implements kit.Capability.
type Capability struct{}

// New returns the capability.
func New() Capability { return Capability{} }

// Commands implements kit.Capability.
func (Capability) Commands(streams kit.Streams, all []kit.Capability) []*cobra.Command {
	return []*cobra.Command{newStatus(streams, all), newPlan(streams)}
}
