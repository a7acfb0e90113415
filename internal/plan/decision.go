package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// Want is what a Cluster asks for.
type Want struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Enabled is false when everything is to be taken out.
	Enabled bool
	// Frozen is true for a Cluster that is paused or being deleted: nothing changes.
	Frozen bool
	// Unusable is why nothing changes, because a label or an annotation of the Cluster cannot be understood, or nil.
	Unusable *finding.Finding
	Options  intent.Options
	// Version is the output version of all templates of a topology, 0 for objects that record their own.
	Version int
	// Admission reports whether webhooks patch an object together with a change of the user's.
	Admission bool
}

// Object is what is known of a bootstrap object.
type Object struct {
	Kind string
	// Name is how messages call the object: kind, namespace and name.
	Name                string
	Labels, Annotations map[string]string
	// Spec is the bootstrap spec, or that which a write asks for.
	Spec patch.Spec
	// Write is the write to the object that is being admitted, or nil.
	Write *Write
	// Pools of the Cluster that use the object; none for a control plane.
	Pools []Pool
	// Foreign is a pool of another Cluster that uses the object too, or nil.
	Foreign *Pool

	// Hooked marks a template of a topology, or what the topology controller has made of it: the topology hook patches it.
	Hooked bool
	// OfMachine marks a KubeadmConfig that Cluster API has made for a Machine.
	OfMachine bool
	// Running reports that a control plane has Machines, or that bootstrap data was made of a KubeadmConfig, as far as
	// is known without asking.
	Running bool
	// Busy reports that Cluster API may be creating the first Machine from the version that a change replaces, see AtRest.
	Busy bool
	// Rolls reports that the user has all Machines of a control plane replaced now.
	Rolls bool
	// Deleted reports that the object is being deleted.
	Deleted bool
	// Facts are what was asked for.
	Facts Facts
}

// Write is a write that is being admitted.
type Write struct {
	// Stored is the spec before the write. On creation it is that of the write: what an object brings along, from a
	// backup or from an earlier call of the webhook, is as good as stored.
	Stored patch.Spec
	// Annotations are those of the stored object.
	Annotations map[string]string
	// Sent is the spec of the write. Recognized are edits that have put managed files into the places of files of the
	// user's that were adopted before. The spec of the object is the one after them.
	Sent       patch.Spec
	Recognized []patch.Edit
	// Creates reports whether the write creates the object.
	Creates bool
}

// Fact is something about an object that costs a request or a search, and that most decisions do not need.
type Fact int

// The facts.
const (
	// NoFact is asked for by a complete decision.
	NoFact Fact = iota
	// FactValues are the settings of the object's proxy Secret.
	FactValues
	// FactTaken is whether somebody else has the name of a generated Secret.
	FactTaken
	// FactInfrastructure is what the machine templates of the pools tell.
	FactInfrastructure
	// FactBegun is whether the first Machine of a control plane exists, or is being created.
	FactBegun
	// FactOriginals are the user's files that managed files have replaced.
	FactOriginals
	// FactOwners are the Clusters that the Secrets which managed files refer to were generated for.
	FactOwners
	// FactAdoptable are the files which may be taken over in a write.
	FactAdoptable
)

// Facts are answers. What is nil has not been asked.
type Facts struct {
	Values         *Values
	Taken          map[string]string // by name: why nothing may refer to a generated Secret of that name, or ""
	Infrastructure *Infrastructure
	Begun          *bool
	Originals      *Originals
	Owners         map[string]string // by the name of a generated Secret: the Cluster that its label names
	Adoptable      map[int]bool      // files of a write, by index
}

// Values are the settings of an object's proxy Secret.
type Values struct {
	// Resolution is nil if there are no settings that can be used; findings of the Cluster say why.
	Resolution *resolve.Resolution
	// Recipe is what a decision has made of the same settings before, nil if none has.
	Recipe *patch.Recipe
	// Withheld reports that the settings must not be in the answer to the write.
	Withheld bool
	// Why is what to tell whoever writes, or nil.
	Why *finding.Finding
}

// Infrastructure is what the machine templates of an object's pools tell.
type Infrastructure struct {
	// Windows says by what a template asks for Windows nodes, or "".
	Windows string
	// Missing names a template that does not exist yet, and the pool that refers to it, or is "".
	Missing string
}

// Originals are the user's files that managed files of an object have replaced, by the path of the managed file.
type Originals struct {
	Files map[string]json.RawMessage
	// Withheld reports that some must not be in the answer to the write, so that nothing can be taken out by it.
	Withheld bool
}

// Decision is what happens to an object.
type Decision struct {
	// Ask is a fact that the decision depends on; Decide has to be called again with it. Nothing else counts then.
	Ask Fact
	// Name is the generated Secret that FactTaken is asked about.
	Name string

	// Edits change the spec. In a write they change the spec that was sent.
	Edits []patch.Edit
	// Adopted are edits that replace files of the user's, by Edits now or by the user's next rollout: their originals have
	// to be kept before.
	Adopted []patch.Edit
	// Annotations are those that get another value; "" removes one.
	Annotations map[string]string
	// Version is the output version of what Edits bring; 0 is that they take everything out.
	Version int
	// Secret is the generated Secret that has to be there and up to date before the edits are carried out, or "".
	Secret string
	// Recipe is what the object should have, nil if that is not known. The zero recipe is nothing.
	Recipe *patch.Recipe
	// Proxied reports whether the object should carry the proxy.
	Proxied bool
	// Waits reports that the user's next rollout brings the edits.
	Waits bool
	// Incomplete reports that delivery Inline does not know all of NO_PROXY yet.
	Incomplete bool
	// Findings say why the object as a whole is not as the Cluster asks.
	Findings []finding.Finding
	// Refused is why the recipe cannot be made, or, a *patch.ConflictError, carried out; else nil.
	Refused error
	// Warnings tell of entries of the user that work against the proxy.
	Warnings []string

	object string
	adopts bool
	pause  pause
	asSent bool // even what Write.Recognized has put in
}

// pause is what becomes of the annotation by which this product holds an object back.
type pause int

// What becomes of it.
const (
	// pauseKeep leaves it as it is stored.
	pauseKeep pause = iota
	// pauseClear removes it.
	pauseClear
	// pauseForEndpoint holds the object back until delivery Inline knows the control-plane endpoint.
	pauseForEndpoint
	// pauseForPatch holds a control plane without Machines back until Cluster API has noticed, so that it can be patched.
	pauseForPatch
)

// NotSupported is the note about an object whose nodes cannot be configured; see patch.Unsupported and patch.ForWindows.
func NotSupported(name, what string) finding.Finding {
	return finding.Finding{Message: name + " is " + what + " and left alone"}
}

// Report returns all that an operator should know of a decision.
func (d Decision) Report() []finding.Finding {
	found := d.Findings
	if d.Refused != nil {
		found = append(found, Refused(d.object, d.Refused, d.adopts))
	}
	for _, warning := range d.Warnings {
		found = append(found, finding.Finding{Message: d.object + ": " + warning})
	}
	return found
}

// Refused says why the recipe of an object cannot be made, or what stands in its way. adopts reports whether files are taken
// over already where that is possible.
func Refused(name string, err error, adopts bool) finding.Finding {
	message := name + ": " + err.Error()
	if _, conflict := errors.AsType[*patch.ConflictError](err); !conflict {
		return finding.Finding{Reason: contract.ReasonInvalidSettings, Message: message}
	}
	if !adopts {
		message += fmt.Sprintf("; or set annotation %s of the Cluster to %q to let the product take over such files",
			contract.AnnotationAdopt, contract.AdoptValue)
	}
	return finding.Finding{Reason: contract.ReasonConflictingFile, Message: message}
}
