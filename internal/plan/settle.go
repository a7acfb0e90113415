package plan

import (
	"encoding/json"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Keep returns the edits by which a write leaves the managed entries of an object as they are: stored is the object
// before the write, asked what the write asks for. If they do not fit beside the entries of the write, none are kept:
// there are no edits, and the error is a *patch.ConflictError.
func Keep(stored, asked patch.Spec) (patch.Plan, error) {
	kept := patch.Keep(stored, asked)
	if err := patch.CheckSize(asked, kept); err != nil {
		return patch.Plan{}, err
	}
	return patch.Plan{Edits: kept}, nil
}

// Bring returns the edits by which a write brings an object to recipe. A write of what is there already, with managed
// entries or without them, gives back what is there, whatever the order of its entries. originals are those of the
// object, see patch.Bring. On an error, which is that of Keep or patch.Ensure, the edits are those of Keep.
func Bring(stored, asked patch.Spec, recipe patch.Recipe, originals map[string]json.RawMessage) (patch.Plan, error) {
	kept, err := Keep(stored, asked)
	if err != nil {
		return kept, err
	}
	brought, err := patch.Bring(patch.Apply(asked, kept.Edits), recipe, originals)
	if err != nil {
		return kept, err
	}
	brought.Edits = append(kept.Edits, brought.Edits...)
	return brought, nil
}

// Take returns the edits by which a write takes all managed entries out of an object, and puts its originals back, also
// for managed files that the write itself has left out.
func Take(stored, asked patch.Spec, originals map[string]json.RawMessage) patch.Plan {
	kept, err := Keep(stored, asked)
	if err != nil || len(originals) == 0 {
		kept = patch.Plan{}
	}
	return patch.Plan{Edits: append(kept.Edits, patch.Take(patch.Apply(asked, kept.Edits), originals)...)}
}

// Carries reports whether spec has every file and every command of recipe, in whatever order: what a topology hook
// has written may have been added to by the patches of others after it. The commands around postKubeadmCommands do
// not count, because they depend on those of the user.
func Carries(spec patch.Spec, recipe patch.Recipe) bool {
	lacks := func(command string) bool { return !slices.Contains(spec.PreKubeadmCommands, command) }
	return !slices.ContainsFunc(recipe.Files, func(f patch.File) bool { return !slices.Contains(spec.Files, f) }) &&
		!slices.ContainsFunc(recipe.First, lacks) && !slices.ContainsFunc(recipe.Last, lacks)
}
