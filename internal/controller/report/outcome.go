package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
)

// Outcome is the result of a step of a pass over a Cluster. The zero value means that there is nothing to report.
type Outcome struct {
	// Findings are in the order in which they were found.
	Findings []finding.Finding
	// Warnings are about the settings in use. They are reported after all findings.
	Warnings []finding.Finding
	// Added and Removed are the objects to which the proxy was added, and from which it was removed.
	Added, Removed []string
	// Holds reports that a condition that is there stays as it is, because the step is about to know more. It brings
	// another pass itself.
	Holds bool
	// Again is the time after which the next pass is due even if nothing changes, or zero.
	Again time.Duration
	// Behind are the Machines whose bootstrap data is not what a new Machine would get, by control plane and pool, nil if
	// the step does not know.
	Behind *[]status.Group
	// RolledOut are the groups of Machines that the step has told Cluster API to replace. Drifting are the groups, without
	// their Machines, that the topology controller will replace.
	RolledOut, Drifting []status.Group
	// Objects counts bootstrap objects by the outcome of their decisions; see plan.Decision.
	Objects map[string]int
	// Changed is when a value that nodes read last changed in a generated Secret, or the zero time.
	Changed time.Time
	// Expires is when the first trusted certificate in use expires, or the zero time.
	Expires time.Time
}

// Add adds a finding. A reason other than "" is one for the condition.
func (o *Outcome) Add(reason, format string, args ...any) {
	o.Findings = append(o.Findings, finding.Finding{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// Note adds a finding that changes no reason.
func (o *Outcome) Note(format string, args ...any) { o.Add("", format, args...) }

// Find adds findings.
func (o *Outcome) Find(found ...finding.Finding) { o.Findings = append(o.Findings, found...) }

// LookAgain asks for a pass after a time, or earlier; 0 asks for none.
func (o *Outcome) LookAgain(after time.Duration) {
	if after > 0 && (o.Again == 0 || after < o.Again) {
		o.Again = after
	}
}

// Count counts a bootstrap object.
func (o *Outcome) Count(outcome string) {
	if o.Objects == nil {
		o.Objects = map[string]int{}
	}
	o.Objects[outcome]++
}

// Join adds the outcome of a later step.
func (o *Outcome) Join(later Outcome) {
	o.Findings = append(o.Findings, later.Findings...)
	o.Warnings = append(o.Warnings, later.Warnings...)
	o.Added, o.Removed = append(o.Added, later.Added...), append(o.Removed, later.Removed...)
	if o.Objects == nil { // a later outcome is joined once
		o.Objects, later.Objects = later.Objects, nil
	}
	for outcome, count := range later.Objects {
		o.Objects[outcome] += count
	}
	if later.Changed.After(o.Changed) {
		o.Changed = later.Changed
	}
	o.Holds = o.Holds || later.Holds
	o.RolledOut, o.Drifting = append(o.RolledOut, later.RolledOut...), append(o.Drifting, later.Drifting...)
	if later.Again != 0 {
		o.LookAgain(later.Again)
	}
	if later.Behind != nil {
		o.Behind = later.Behind
	}
	if o.Expires.IsZero() || !later.Expires.IsZero() && later.Expires.Before(o.Expires) {
		o.Expires = later.Expires
	}
}

// IsExplained reports whether a finding has a reason, which is then that of the condition.
func (o Outcome) IsExplained() bool {
	return slices.ContainsFunc(o.Findings, func(one finding.Finding) bool { return one.Reason != "" })
}
