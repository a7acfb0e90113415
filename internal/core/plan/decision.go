package plan

import (
	"errors"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Want is the desired state of a Cluster.
type Want struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Enabled is false if all managed entries are to be removed.
	Enabled bool
	// Frozen is true for a Cluster that is paused or being deleted: nothing changes.
	Frozen bool
	// Unusable is why nothing changes, because a label or an annotation of the Cluster cannot be understood, or nil.
	Unusable *finding.Finding
	Options  settings.Options
	// Version is the output version of all templates of a topology, 0 for objects that record their own.
	Version int
	// Admission reports whether webhooks patch an object together with a change of the user.
	Admission bool
}

// Object is a bootstrap object as Decide reads it.
type Object struct {
	Kind string
	// Name is the object's name in messages: kind, namespace and name.
	Name                string
	Labels, Annotations map[string]string
	// Spec is the bootstrap spec; at admission, the one that the write asks for.
	Spec patch.Spec
	// Write is the write to the object that is being admitted, or nil.
	Write *Write
	// Pools of the Cluster that use the object; none for a control plane.
	Pools []Pool
	// Foreign is a pool of another Cluster that uses the object too, or nil.
	Foreign *Pool
	// Copied is the template of a KubeadmConfig without bootstrap data that a worker Machine of a topology has, else nil.
	Copied *Copied

	// Hooked marks a template of a topology, or an object that the topology controller has created from one: the
	// topology hook patches it.
	Hooked bool
	// OfMachine marks a KubeadmConfig that Cluster API has created for a Machine.
	OfMachine bool
	// Running reports that a control plane has Machines, or that a KubeadmConfig has bootstrap data, as far as is known
	// without asking.
	Running bool
	// Busy reports that Cluster API may be creating the first Machine from the version that a change replaces, see
	// AtRest.
	Busy bool
	// Rolls reports that the user's change replaces all Machines of a control plane now.
	Rolls bool
	// Deleted reports that the object is being deleted.
	Deleted bool
}

// Write is a write that is being admitted.
type Write struct {
	// Stored is the spec before the write. On creation it is that of the write: what an object contains from a backup
	// or from an earlier call of the webhook counts as stored.
	Stored patch.Spec
	// Annotations are those of the stored object.
	Annotations map[string]string
	// Creates reports whether the write creates the object.
	Creates bool
}

// Facts has the facts about an object that cost a request or a search. A decision calls only the methods that it needs.
type Facts interface {
	// Values returns the settings of the object's proxy Secret.
	Values(o Object) (Values, error)
	// Taken returns why nothing may refer to a generated Secret of a name, "" if the name is free or the Secret is ours.
	Taken(o Object, secret string) (why string, err error)
	// Infrastructure returns the facts in the machine templates of the object's pools.
	Infrastructure(o Object) (Infrastructure, error)
	// Begun reports whether the first Machine of the Cluster's control plane exists, or is being created.
	Begun() (bool, error)
}

// Values are the settings of an object's proxy Secret.
type Values struct {
	// Resolution is nil if there are no settings that can be used; findings of the Cluster say why. At admission it has
	// the Files of the present generated Secret, or none.
	Resolution *settings.Resolution
	// Recipe is the recipe that an earlier decision has made of the same settings, or nil.
	Recipe *patch.Recipe
}

// Infrastructure has the facts in the machine templates of an object's pools.
type Infrastructure struct {
	// Windows is the field by which a template asks for Windows nodes, or "".
	Windows string
	// Missing names a template that does not exist yet, and the pool that refers to it, or is "".
	Missing string
}

// Decision is the change of an object, or the reason why there is none.
type Decision struct {
	// Edits change the spec. In a write they change the spec that was sent.
	Edits []patch.Edit
	// Annotations are the changed annotations; "" removes one.
	Annotations map[string]string
	// Version is the output version of the entries that Edits add; 0 if they remove all.
	Version int
	// Secret is the generated Secret that must be up to date before the edits are applied, or "".
	Secret string
	// Recipe is the desired recipe of the object, nil if that is not known. The zero recipe has no entries.
	Recipe *patch.Recipe
	// Resolution are the settings that the object should carry, nil if it should carry none or they cannot be used.
	Resolution *settings.Resolution
	// Waits reports that the edits wait for the user's next rollout.
	Waits bool
	// Findings are the reasons why the object is not as the Cluster asks.
	Findings []finding.Finding
	// Refused is why the recipe cannot be made or, if it is a *patch.ConflictError, applied; else nil.
	Refused error
	// Warnings are about entries of the user that interfere with the proxy. Their places are in the spec.
	Warnings []finding.Finding
	// Notes are those of Notes, for a decision that the controller has carried out.
	Notes []finding.Finding

	object string
	pause  pause
}

// pause is the change of the annotation with which this product pauses an object.
type pause int

// The values of pause.
const (
	// pauseKeep leaves it as it is stored.
	pauseKeep pause = iota
	// pauseClear removes it.
	pauseClear
	// pauseForPatch pauses a control plane without Machines until Cluster API confirms the pause, so that it can be
	// patched.
	pauseForPatch
)

// NotSupported is the note about an object whose nodes cannot be configured; see patch.Unsupported and
// patch.ForWindows.
func NotSupported(name, what string) finding.Finding {
	return finding.Finding{Message: name + " is " + what + " and is not patched"}
}

// Outcomes of decisions, for counting them.
const (
	// OutcomeChanged: the object is changed, or paused in order to be.
	OutcomeChanged = "changed"
	// OutcomeUnchanged: it is as it should be.
	OutcomeUnchanged = "unchanged"
	// OutcomeWaiting: it changes with the user's next rollout.
	OutcomeWaiting = "waiting"
	// OutcomeConflict: the recipe cannot be made or applied.
	OutcomeConflict = "conflict"
	// OutcomeLeftAlone: the desired entries are not known, or the object cannot be patched.
	OutcomeLeftAlone = "left-alone"
)

// removes reports whether an object is to have no entries.
func (d Decision) removes() bool { return d.Recipe != nil && d.Recipe.Version == 0 }

// Outcome returns one of the outcomes.
func (d Decision) Outcome() string {
	switch {
	case d.Refused != nil:
		return OutcomeConflict
	case d.Waits:
		return OutcomeWaiting
	case d.Recipe == nil:
		return OutcomeLeftAlone
	case len(d.Edits) > 0:
		return OutcomeChanged
	default:
		return OutcomeUnchanged
	}
}

// Report returns everything about a decision that an operator should know.
func (d Decision) Report() []finding.Finding {
	found := d.Findings
	if d.Refused != nil {
		found = append(found, Refused(d.object, d.Refused))
	}
	for _, warning := range d.Warnings {
		warning.Code = ""
		found = append(found, finding.Finding{Message: d.object + ": " + warning.String()})
	}
	return found
}

// Refused is the finding about a recipe that cannot be made, or that conflicts with the user's entries.
func Refused(name string, err error) finding.Finding {
	message := name + ": " + err.Error()
	if _, conflict := errors.AsType[*patch.ConflictError](err); !conflict {
		return finding.Finding{Reason: contract.ReasonInvalidSettings, Message: message}
	}
	return finding.Finding{Reason: contract.ReasonConflictingFile, Message: message}
}
