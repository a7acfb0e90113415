package plan

import (
	"errors"
	"fmt"
	"strconv"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Decide decides how an object is changed to the state that its Cluster desires. It is a function of its arguments and
// of the answers of facts alone. Its errors are those of facts.
//
// For a write at admission the outcome is the controller's for the object after the write, and managed entries that the
// write removes are restored.
func Decide(o Object, want Want, facts Facts) (Decision, error) {
	d := decider{Object: o, want: want, facts: facts}
	if d.stored = o.Spec; o.Write != nil {
		d.stored = o.Write.Stored
	}
	return d.complete(d.decide())
}

// decider holds the state of one decision.
type decider struct {
	Object

	want   Want
	facts  Facts
	stored patch.Spec
}

func (d decider) decide() (Decision, error) {
	switch {
	case d.Copied != nil:
		return d.copied()
	case d.want.Frozen:
		return d.skip(), nil
	case d.want.Unusable != nil:
		return d.skip(*d.want.Unusable), nil
	case d.want.Enabled:
		return d.enable()
	default:
		return d.disable()
	}
}

// complete adds the common part of all decisions.
func (d decider) complete(out Decision, err error) (Decision, error) {
	if err != nil {
		return Decision{}, err
	}
	out.object = d.Name
	out.Annotations = d.annotations(out)
	return out, nil
}

// annotations returns the annotations that a decision changes.
func (d decider) annotations(out Decision) map[string]string {
	want := map[string]string{}
	switch record := strconv.Itoa(out.Version); {
	case d.Write == nil && len(out.Edits) == 0:
		// Where somebody else has removed the entries, only their version is left to be removed.
		if out.removes() && d.Annotations[contract.AnnotationOutputVersion] != "" && !patch.IsPatched(d.Spec) &&
			!IsPausedByUser(d.Annotations) {
			want[contract.AnnotationOutputVersion] = ""
		}
	case d.Write == nil:
		if want[contract.AnnotationOutputVersion] = record; out.Version == 0 {
			want[contract.AnnotationOutputVersion] = ""
		}
	default:
		if out.Version == 0 {
			record = d.Write.Annotations[contract.AnnotationOutputVersion]
		}
		switch patched := patch.IsPatched(patch.Apply(d.Spec, out.Edits)); {
		case !patched:
			want[contract.AnnotationOutputVersion] = ""
		case record != "":
			want[contract.AnnotationOutputVersion] = record
		}
	}
	switch held := IsPausedByUs(d.Annotations); {
	case out.pause == pauseForPatch:
		want[clusterv1.PausedAnnotation] = contract.PausedForPatch
	case out.pause == pauseClear && held:
		want[clusterv1.PausedAnnotation] = ""
	case out.pause == pauseKeep && d.Write != nil && IsPausedByUs(d.Write.Annotations) && !IsPausedByUser(d.Annotations):
		want[clusterv1.PausedAnnotation] = d.Write.Annotations[clusterv1.PausedAnnotation]
	}
	return want
}

// enable applies the object's recipe.
func (d decider) enable() (Decision, error) {
	if found, skip := d.skipped(); skip {
		return d.skip(found), nil
	}
	switch {
	case d.Deleted && IsPausedByUs(d.Annotations):
		return d.resume(), nil
	case d.Write != nil && (d.isUnused() || d.isLate()):
		return d.skip(), nil
	case !d.pool().UsesProxy():
		return d.remove(false)
	}
	values, err := d.facts.Values(d.Object)
	if err != nil {
		return Decision{}, err
	}
	secret := d.GeneratedSecret(d.want.Cluster)
	// Entries are constants: without settings the nodes wait for the Secret.
	switch why, err := d.facts.Taken(d.Object, secret); {
	case err != nil:
		return Decision{}, err
	case why != "":
		return d.removeTaken(secret, why)
	}
	return d.apply(values, secret)
}

// isUnused reports whether a template is used by no pool, so that its Cluster and proxy Secret are not known.
func (d decider) isUnused() bool { return d.Kind == KindTemplate && len(d.Pools) == 0 }

// isLate reports whether a change has to wait for the user's next rollout, as far as is known without asking.
func (d decider) isLate() bool {
	return d.Running && !d.Rolls && (d.Kind == KindConfig || d.want.Options.Rollout != contract.RolloutImmediate)
}

// skipped reports whether the object is not written, and why.
func (d decider) skipped() (found finding.Finding, skip bool) {
	other := d.disagreeing()
	switch what := patch.Unsupported(d.Spec); {
	case IsTopologyOwned(d.Labels) && !d.Hooked:
		found = d.find(contract.ReasonTemplateNotSupported,
			"%s belongs to a ClusterClass topology and is not patched", d.Name)
	case IsPausedByUser(d.Annotations):
		found = d.find(contract.ReasonPaused, "%s is paused and is not patched; remove annotation %s to continue",
			d.Name, clusterv1.PausedAnnotation)
	case what != "":
		found = NotSupported(d.Name, what)
	case other != nil:
		found = d.find(contract.ReasonSharedTemplate,
			"%s and %s share %s but name different proxy Secrets; give each its own template",
			d.Pools[0], other, d.Name)
	case d.Foreign != nil:
		user := "Cluster " + d.Foreign.Cluster
		if d.Foreign.Object != "" {
			user = d.Foreign.String() + " of " + user
		}
		found = d.find(contract.ReasonSharedTemplate,
			"%s is also used by %s; give each Cluster its own template", d.Name, user)
	default:
		return found, false
	}
	return found, true
}

// disagreeing returns a pool that names another proxy Secret than the first one, or nil.
func (d decider) disagreeing() *Pool {
	for i := range d.Pools {
		if d.Pools[i].Override != d.Pools[0].Override {
			return &d.Pools[i]
		}
	}
	return nil
}

// apply applies the recipe of the object's settings.
func (d decider) apply(values Values, secret string) (Decision, error) {
	made, annotations := d.stored, d.Annotations
	if d.Write != nil {
		annotations = d.Write.Annotations
	}
	if d.Rolls {
		made = patch.Spec{} // nothing to keep the version of
	}
	version := d.want.Version
	by := d.recipes(values, secret)
	if version == 0 {
		version = Version(annotations, made, patch.OutputVersion, by)
	}
	recipe, err := patch.Recipe{}, error(nil)
	if values.Recipe != nil {
		recipe = *values.Recipe
	} else {
		recipe, err = by(version)
	}
	out := Decision{Resolution: values.Resolution}
	if err != nil {
		return d.refuse(out, err), nil
	}
	applied, refused := d.edits(recipe)
	if refused != nil {
		return d.refuse(out, refused), nil
	}
	if left, cannot, err := d.infrastructure(); cannot || err != nil {
		return left, err
	}
	out.Warnings = applied.Warnings
	out.Edits, out.Version, out.Recipe, out.Secret = applied.Edits, recipe.Version, &recipe, secret
	return d.applyOrWait(out, false)
}

// recipes returns a function that makes the recipe of an output version.
func (d decider) recipes(values Values, secret string) func(version int) (patch.Recipe, error) {
	trust := false
	switch {
	case d.Hooked: // the same entries whatever the settings are, because a hook sees no Secret
		if r := values.Resolution; r != nil && r.Settings.IsTrustOnly() {
			if _, err := trustOnly(d.want.Options); err != nil {
				return func(int) (patch.Recipe, error) { return patch.Recipe{}, err }
			}
		}
	case values.Resolution == nil || values.Resolution.Files == nil:
		trust = patch.IsTrustOnly(d.stored)
	default:
		trust = patch.HasOnlyCertificates(values.Resolution.Files)
	}
	return func(version int) (patch.Recipe, error) { return Recipe(d.want.Options, version, trust, secret) }
}

// edits returns the edits that apply recipe to the object.
func (d decider) edits(recipe patch.Recipe) (patch.Plan, error) {
	if d.Write == nil {
		return patch.Ensure(d.Spec, recipe)
	}
	return Apply(d.stored, d.Spec, recipe)
}

// refuse leaves an object unchanged whose recipe cannot be made or applied.
func (d decider) refuse(out Decision, err error) Decision {
	refused := d.skip()
	if _, ok := errors.AsType[*patch.ConflictError](err); ok {
		refused.pause = pauseClear
	}
	refused.Resolution, refused.Refused = out.Resolution, err
	return refused
}

// infrastructure returns the decision about an object that cannot be patched yet, or at all: its machine template is
// for Windows nodes, or does not exist yet, so that there are no Machines either. cannot is false for any other object.
func (d decider) infrastructure() (left Decision, cannot bool, err error) {
	if len(d.Pools) == 0 || patch.IsPatched(d.stored) {
		return left, false, nil
	}
	infra, err := d.facts.Infrastructure(d.Object)
	switch {
	case err != nil:
		return left, false, err
	case infra.Windows != "":
		left = d.skip(NotSupported(d.Name, patch.ForWindows(infra.Windows)))
		left.pause = pauseClear
		return left, true, nil
	case infra.Missing != "" && !d.OfMachine: // the template of a Machine existed, if only for a moment
		return d.skip(d.find(contract.ReasonWaitingForObjects,
			"%s does not exist yet; it shows whether nodes run Windows", infra.Missing)), true, nil
	}
	return left, false, nil
}

// skip keeps the managed entries as they are stored. If they do not fit beside the entries of a write, the write is
// admitted unchanged.
func (d decider) skip(findings ...finding.Finding) Decision {
	out := Decision{Findings: findings}
	if d.Write == nil {
		if d.Annotations[clusterv1.PausedAnnotation] == contract.PausedForPatch {
			out.pause = pauseClear // it cannot be patched any more
		}
		return out
	}
	kept, err := Keep(d.stored, d.Spec)
	if err != nil {
		return Decision{Findings: []finding.Finding{d.find(contract.ReasonConflictingFile, "%s: %s", d.Name,
			err)}}
	}
	out.Edits = kept.Edits
	return out
}

func (d decider) find(reason, format string, args ...any) finding.Finding {
	return finding.Finding{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
