package reconcile

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// Preview is the result of a dry-run reconcile.
type Preview struct {
	report.Outcome

	// Condition is the one that the pass would report, the zero value if it would report none or remove it.
	Condition finding.Condition
	// Settings are those that the pass has read for an enabled Cluster, in order.
	Settings []Settings
	// Reconciled are the bootstrap objects with the decisions about them, and with what their nodes should have.
	Reconciled []Reconciled
}

// Settings are those of a Cluster or of one of its pools, or why they cannot be used.
type Settings struct {
	// Resolution is nil if Err is not.
	Resolution *resolve.Resolution
	// Warnings are about the settings.
	Warnings []finding.Finding
	// Err has findings, or is a resolve.Hidden.
	Err error
}
