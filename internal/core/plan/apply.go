package plan

import (
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Keep returns the edits that keep the managed entries of an object unchanged in a write: stored is the object before
// the write, requested the object that is written. If they do not fit beside its entries, none are kept: there are no
// edits, and the error is a *patch.ConflictError.
func Keep(stored, requested patch.Spec) (patch.Plan, error) {
	kept := patch.Keep(stored, requested)
	if err := patch.CheckSize(requested, kept); err != nil {
		return patch.Plan{}, err
	}
	return patch.Plan{Edits: kept}, nil
}

// Apply returns the edits that apply recipe to an object in a write. Writing the stored object again, with or without
// managed entries and in any order, results in the stored object. On an error of Keep or patch.Ensure, the edits are
// those of Keep.
func Apply(stored, requested patch.Spec, recipe patch.Recipe) (patch.Plan, error) {
	kept, err := Keep(stored, requested)
	if err != nil {
		return kept, err
	}
	applied, err := patch.Ensure(patch.Apply(requested, kept.Edits), recipe)
	if err != nil {
		return kept, err
	}
	if len(kept.Edits) > 0 {
		applied.Edits = append(kept.Edits, applied.Edits...)
	}
	return applied, nil
}

// Carries reports whether spec has every file and every command of recipe, in any order: other patches may have added
// entries after the topology hook's. The commands around postKubeadmCommands do not count, because they depend on the
// user's.
func Carries(spec patch.Spec, recipe patch.Recipe) bool {
	lacks := func(command string) bool { return !slices.Contains(spec.PreKubeadmCommands, command) }
	return !slices.ContainsFunc(recipe.Files, func(f patch.File) bool { return !slices.Contains(spec.Files, f) }) &&
		!slices.ContainsFunc(recipe.First, lacks) && !slices.ContainsFunc(recipe.Last, lacks)
}
