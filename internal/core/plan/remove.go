package plan

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// disable removes all managed entries.
func (d decider) disable() (Decision, error) {
	if IsTopologyOwned(d.Labels) || d.Write != nil && (d.isUnused() || d.isLate()) {
		return d.skip(), nil
	}
	if !patch.IsPatched(d.Spec) && !patch.IsPatched(d.stored) {
		out := d.resume()
		out.Recipe = &patch.Recipe{}
		return out, nil
	}
	if IsPausedByUser(d.Annotations) {
		return d.skip(d.find(contract.ReasonPaused, "%s is paused and keeps the proxy until it is unpaused", d.Name)), nil
	}
	if IsOthers(d.stored, d.want.Cluster) {
		return d.skip(), nil // a shared template that another Cluster had patched
	}
	return d.remove(false)
}

// remove removes the managed entries. forced is for an object that refers to a Secret that is not ours.
func (d decider) remove(forced bool, findings ...finding.Finding) (Decision, error) {
	out := Decision{Edits: patch.Remove(d.Spec), Findings: findings}
	if !forced {
		out.Recipe = &patch.Recipe{}
	}
	return d.applyOrWait(out, forced)
}

// removeTaken removes the managed entries from an object that refers to a Secret that is not ours, and keeps any other
// unchanged, because nothing may be patched to refer to that Secret.
func (d decider) removeTaken(secret, why string) (Decision, error) {
	found := d.find(contract.ReasonNameTaken, "%s", why)
	if !refersTo(d.stored, secret) || d.Running && !d.Rolls {
		out := d.skip(found)
		out.pause = pauseClear
		return out, nil
	}
	return d.remove(true, found)
}
