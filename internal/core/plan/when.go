package plan

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// applyOrWait decides when the edits of a decision are applied: now, or with the user's next rollout. forced is for
// entries that have to be removed even though no rollout was asked for; they never replace running Machines.
func (d decider) applyOrWait(out Decision, forced bool) (Decision, error) {
	held := IsPausedByUs(d.Annotations)
	out.pause = pauseClear // also for a write that removes it, because a webhook is called again on its own answer
	if d.Hooked || !d.changes(out) && (d.Write == nil || !held) {
		return out, nil
	}
	controlPlane := d.Kind == KindControlPlane
	if controlPlane && !d.Running && d.Busy && held && d.Write == nil {
		return d.stop(out), nil // Cluster API has not confirmed the pause yet
	}
	running := d.Running
	if controlPlane && !running && (d.Write == nil || !d.Rolls) {
		var err error
		if running, err = d.facts.Begun(); err != nil {
			return Decision{}, err
		}
	}
	waiting := out.Version > 0 && out.Resolution == nil // new nodes would wait for settings that can be used
	immediate := d.want.Options.Rollout == contract.RolloutImmediate && !waiting
	switch free := d.Rolls || controlPlane && !forced && immediate; {
	case running && !free && forced:
		return d.skipAs(out, pauseClear), nil
	case running && !free:
		return d.wait(out), nil
	case !running && d.Busy && (d.Write == nil || !d.Write.Creates):
		return d.stop(out), nil
	}
	return out, nil
}

// changes reports whether a decision changes the managed entries or the pause, compared with leaving the object alone.
func (d decider) changes(out Decision) bool {
	if d.Write == nil {
		return len(out.Edits) > 0
	}
	kept := patch.Apply(d.Spec, d.skip().Edits)
	return len(patch.Keep(patch.Apply(d.Spec, out.Edits), kept)) > 0
}

// skipAs is skip with everything of a decision except its edits.
func (d decider) skipAs(out Decision, p pause) Decision {
	kept := d.skip(out.Findings...)
	kept.Warnings = out.Warnings
	kept.Recipe, kept.Secret, kept.Resolution, kept.pause = out.Recipe, out.Secret, out.Resolution, p
	return kept
}

// wait defers the edits of a decision to the user's next rollout.
func (d decider) wait(out Decision) Decision {
	kept := d.skipAs(out, out.pause)
	kept.Waits = true
	kept.Findings = append(kept.Findings, d.waiting(out.Version == 0))
	return kept
}

// stop pauses a control plane without Machines, so that Cluster API does not create its first Machine from the version
// that is about to be patched. The control plane is patched when Cluster API has confirmed the pause.
func (d decider) stop(out Decision) Decision {
	if d.Write != nil {
		return d.skipAs(out, pauseKeep) // the controller pauses it
	}
	kept := d.skipAs(out, pauseForPatch)
	kept.Findings = append(kept.Findings, d.find(contract.ReasonConfiguring,
		"%s is paused by annotation %s; it is patched before it has Machines, once Cluster API confirms the pause", d.Name,
		clusterv1.PausedAnnotation))
	return kept
}

// waiting returns the finding about a running object whose edits wait.
func (d decider) waiting(removing bool) finding.Finding {
	reason, waits, next := contract.ReasonWaitingForRollout, "waits for its next rollout", "gets the current proxy"
	if removing {
		reason, waits, next = contract.ReasonRemovalWaiting, "keeps the proxy until its next rollout", "has no proxy"
	}
	switch {
	case d.Kind == KindConfig:
		return d.find(reason, "%s already has its bootstrap data, which does not change; a new KubeadmConfig %s", d.Name,
			next)
	case !d.want.Admission && removing: // nothing changes it in the write that rolls it
		waits = "keeps the proxy"
	case !d.want.Admission:
		waits = "is not patched"
	}
	return d.find(reason, "%s %s, %s", d.Name, waits, ToRollNow)
}

// ToRollNow ends a message about an object that waits for a rollout.
const ToRollNow = "because changing it now would replace its Machines; to roll it now set annotation " +
	contract.AnnotationRollout + "=" + contract.RolloutImmediate + " on the Cluster"

// resume removes this product's pause from an object.
func (d decider) resume() Decision {
	out := d.skip()
	out.pause = pauseClear
	return out
}
