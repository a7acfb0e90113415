package plan

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"

// Copied is the current template of the pool of a KubeadmConfig that was copied from a template of a topology.
type Copied struct {
	// Paused reports that its copies are paused until delivery Inline knows the control-plane endpoint.
	Paused bool
	// Patched reports whether it carries the proxy.
	Patched bool
	// Recipe is what its copies should have, nil if that is not known or nothing.
	Recipe *patch.Recipe
	// Conflict reports that an entry of the user in the copy conflicts with it.
	Conflict bool
}

// DecideCopy is Decide for the KubeadmConfig of a worker Machine of a topology without bootstrap data. It was copied
// from a template that the topology controller may have replaced since, and nothing else compares the two. from is nil
// if the template is not known. With delivery Inline the first template of a pool pauses its copies. They resume when
// the pool has another template, with the entries of that one.
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
	switch {
	case IsPausedByUser(d.Annotations), from == nil, from.Paused, patch.IsPatched(d.Spec) && !IsPausedByUs(d.Annotations):
		return d.leave()
	// the Machines do not get what the topology controller has not given to the pool
	case !d.want.Enabled, !from.Patched, from.Conflict:
		return d.resume()
	case from.Recipe == nil:
		return d.leave()
	}
	goal, err := patch.Ensure(d.Spec, *from.Recipe)
	if err != nil {
		return d.resume()
	}
	if out := d.infrastructure(); out != nil {
		return *out
	}
	return d.carryOut(Decision{Edits: goal.Edits, Version: from.Recipe.Version}, false)
}
