package plan

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"

// Copied is the current template of the pool of a KubeadmConfig that was copied from a template of a topology.
type Copied struct {
	// Patched reports whether it carries the proxy.
	Patched bool
	// Recipe is what its copies should have, nil if that is not known or nothing.
	Recipe *patch.Recipe
}

// DecideCopy is Decide for the KubeadmConfig of a worker Machine of a topology without bootstrap data. It was copied
// from a template that the topology controller may have replaced since, and nothing else compares the two. from is nil
// if the template is not known.
func DecideCopy(o Object, want Want, from *Copied) Decision {
	d := decider{Object: o, want: want, stored: o.Spec}
	return d.complete(d.decideCopy(from))
}

func (d decider) decideCopy(from *Copied) Decision {
	if d.want.Enabled {
		for _, name := range patch.References(d.Spec) {
			if why := d.Facts.Taken[name]; why != "" {
				return d.takeBack(name, why)
			}
		}
	}
	// The Machines do not get what the topology controller has not given to the pool.
	if !d.want.Enabled || IsPausedByUser(d.Annotations) || patch.IsPatched(d.Spec) || from == nil || !from.Patched ||
		from.Recipe == nil {
		return d.leave()
	}
	goal, err := patch.Ensure(d.Spec, *from.Recipe)
	if err != nil {
		return d.leave()
	}
	if out := d.infrastructure(); out != nil {
		return *out
	}
	return d.carryOut(Decision{Edits: goal.Edits, Version: from.Recipe.Version}, false)
}
