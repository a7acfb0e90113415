package plan

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"

// Keep returns the edits by which a write leaves the managed entries of an object as they are: stored is the object
// before the write, asked what the write asks for.
func Keep(stored, asked patch.Spec) patch.Plan {
	return patch.Plan{Edits: patch.Keep(stored, asked)}
}

// Bring returns the edits by which a write brings an object to recipe. A write of what is there already, with managed
// entries or without them, gives back what is there, whatever the order of its entries. On an error, which is that of
// patch.Ensure, the managed entries are kept as they are.
func Bring(stored, asked patch.Spec, recipe patch.Recipe) (patch.Plan, error) {
	kept := patch.Keep(stored, asked)
	brought, err := patch.Ensure(patch.Apply(asked, kept), recipe)
	if err != nil {
		return patch.Plan{Edits: kept}, err
	}
	brought.Edits = append(kept, brought.Edits...)
	return brought, nil
}

// Take returns the edits by which a write takes all managed entries out of an object.
func Take(asked patch.Spec) patch.Plan { return patch.Plan{Edits: patch.Remove(asked)} }
