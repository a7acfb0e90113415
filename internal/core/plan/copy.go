package plan

import (
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Copied is the current template of the pool of a KubeadmConfig that was copied from a template of a topology. The zero
// value is a template that is not known.
type Copied struct {
	// Patched reports whether it carries the proxy.
	Patched bool
	// Recipe is the desired recipe of its copies, nil if there is none or it is not known.
	Recipe *patch.Recipe
}

// copied decides about an object that was copied from a template that the topology controller may have replaced since:
// nothing else compares the two.
func (d decider) copied() (Decision, error) {
	if d.want.Enabled {
		for _, name := range slices.Compact(patch.References(d.Spec)) {
			switch why, err := d.facts.Taken(d.Object, name); {
			case err != nil:
				return Decision{}, err
			case why != "":
				return d.removeTaken(name, why)
			}
		}
	}
	// Machines do not get entries that the topology controller has not applied to the pool.
	recipe := d.Copied.Recipe
	if !d.want.Enabled || IsPausedByUser(d.Annotations) || patch.IsPatched(d.Spec) || !d.Copied.Patched || recipe == nil {
		return d.skip(), nil
	}
	goal, err := patch.Ensure(d.Spec, *recipe)
	if err != nil {
		return d.skip(), nil //nolint:nilerr // the finding about its template reports what is wrong
	}
	if left, cannot, err := d.infrastructure(); cannot || err != nil {
		return left, err
	}
	return d.applyOrWait(Decision{Edits: goal.Edits, Version: recipe.Version}, false)
}
