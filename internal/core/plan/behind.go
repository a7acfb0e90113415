package plan

import (
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Update is what the node of a Machine got after it had booted.
type Update struct {
	// At is when the content of the generated Secret that it got had last changed, or the zero time.
	At time.Time
	// Files is patch.FilesDigest of its files, "" if they are those of the Machine's bootstrap spec, and
	// contract.FilesRemovedValue if those were removed.
	Files string
}

// Has reports whether the node got content that last changed at a time, which is zero if it never did.
func (u Update) Has(changed time.Time) bool { return !u.At.IsZero() && !u.At.Before(changed) }

// UpdateOf is the update that annotations of a KubeadmConfig record. What is not ours is none.
func UpdateOf(annotations map[string]string) Update {
	update := Update{Files: annotations[contract.AnnotationUpdatedFiles]}
	if at, err := time.Parse(time.RFC3339, annotations[contract.AnnotationUpdatedAt]); err == nil {
		update.At = at
	}
	return update
}

// LagOf compares a Machine's bootstrap spec, whose data was generated at some time, with the recipe of the object that
// it was created from. changed is when the content of the generated Secret last changed, or the zero time. Times have a
// resolution of one second; in doubt the data is the older.
//
// The empty recipe asks for no managed entry. A spec that conflicts with the recipe, for example because the user has
// removed a file since, has old entries.
func LagOf(spec patch.Spec, recipe patch.Recipe, made time.Time, updated Update, changed time.Time) outdated.Lag {
	removed := updated.Files == contract.FilesRemovedValue
	if len(recipe.Files) == 0 && len(recipe.First) == 0 {
		if patch.IsPatched(spec) && !removed {
			return outdated.OldEntries
		}
		return outdated.Current
	}
	goal, err := patch.Ensure(spec, recipe)
	old := err != nil || len(goal.Edits) > 0
	files := patch.FilesDigest(recipe)
	switch {
	case old && (files == "" || updated.Files != files || updated.At.Before(changed)):
		return outdated.OldEntries
	case !old && removed:
		return outdated.OldContent
	case !old && !changed.IsZero() && !made.After(changed) && updated.At.Before(changed):
		return outdated.OldContent
	}
	return outdated.Current
}

// Replaces reports whether rollout.after, if it were set to now, would replace a Machine that the present value does
// not: Cluster API replaces Machines that are older than rollout.after. after is zero if it is not set. A time in the
// future is a scheduled rollout that has not begun.
func Replaces(created, after time.Time) bool { return after.IsZero() || !created.Before(after) }
