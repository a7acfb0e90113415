package reconcile

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
)

// Preview is the result of a dry-run reconcile.
type Preview struct {
	report.Outcome

	// Condition is the one that the pass would report, the zero value if it would report none or remove it.
	Condition finding.Condition
	// Reconciled are the bootstrap objects with the decisions about them, and with what their nodes should have.
	Reconciled []Reconciled
}
