package plan_test

import (
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func TestLagOf(t *testing.T) {
	t.Parallel()
	second := func(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }
	recipe := reference(t)
	files, static := patch.FilesDigest(recipe), recipe
	static.Targets = contract.AllTargets()
	conflict := own()
	conflict.Files = append(conflict.Files, patch.File{Path: recipe.Files[1].Path, Content: "[Service]\n"})
	damaged := ensured(t, own())
	damaged.PreKubeadmCommands = damaged.PreKubeadmCommands[1:]
	for name, test := range map[string]struct {
		spec                   patch.Spec
		recipe                 patch.Recipe
		made, updated, changed time.Time
		want                   outdated.Lag
		files                  string // of the update
	}{
		"made of the recipe, and the Secret never changed":        {ensured(t, own()), recipe, second(1), time.Time{}, time.Time{}, outdated.Current, ""},
		"made after the Secret changed":                           {ensured(t, own()), recipe, second(2), time.Time{}, second(1), outdated.Current, ""},
		"made before the Secret changed":                          {ensured(t, own()), recipe, second(1), time.Time{}, second(2), outdated.OldContent, ""},
		"made in the second in which the Secret changed":          {ensured(t, own()), recipe, second(1), time.Time{}, second(1), outdated.OldContent, ""},
		"its node updated to the content":                         {ensured(t, own()), recipe, second(1), second(2), second(2), outdated.Current, ""},
		"changed again since its node was updated":                {ensured(t, own()), recipe, second(1), second(2), second(3), outdated.OldContent, ""},
		"its node updated, and other entries":                     {damaged, recipe, second(1), second(2), second(2), outdated.OldEntries, ""},
		"without managed entries":                                 {own(), recipe, second(2), time.Time{}, time.Time{}, outdated.OldEntries, ""},
		"without a managed command":                               {damaged, recipe, second(2), time.Time{}, time.Time{}, outdated.OldEntries, ""},
		"with a file of the user in the way":                      {conflict, recipe, second(1), time.Time{}, time.Time{}, outdated.OldEntries, ""},
		"with managed entries that nobody wants any more":         {ensured(t, own()), patch.Recipe{}, second(1), time.Time{}, second(2), outdated.OldEntries, ""},
		"without managed entries, and nobody wants any":           {own(), patch.Recipe{}, second(1), time.Time{}, second(2), outdated.Current, ""},
		"an empty spec without managed entries is behind as well": {patch.Spec{}, recipe, second(1), time.Time{}, time.Time{}, outdated.OldEntries, ""},
		"its node has the files, and the content":                 {damaged, recipe, second(1), second(2), second(2), outdated.Current, files},
		"its node has the files, the Secret never changed":        {own(), recipe, second(1), time.Time{}, time.Time{}, outdated.Current, files},
		"its node has the files instead of the user's":            {conflict, recipe, second(1), time.Time{}, time.Time{}, outdated.Current, files},
		"its node has the files, and not the content":             {damaged, recipe, second(1), second(2), second(3), outdated.OldEntries, files},
		"its node has other files":                                {damaged, recipe, second(1), second(2), second(2), outdated.OldEntries, patch.FilesDigest(patch.Recipe{})},
		"its node has the files, and static Pods no variables":    {own(), static, second(1), second(2), second(2), outdated.OldEntries, patch.FilesDigest(static)},
		"its node has lost the files of its entries":              {ensured(t, own()), recipe, second(1), second(2), time.Time{}, outdated.OldContent, contract.FilesRemovedValue},
		"its node has lost its files, and other entries":          {damaged, recipe, second(1), second(2), time.Time{}, outdated.OldEntries, contract.FilesRemovedValue},
		"its node has lost the files that nobody wants any more":  {ensured(t, own()), patch.Recipe{}, second(1), time.Time{}, second(2), outdated.Current, contract.FilesRemovedValue},
		"its node had the files, and its spec is current":         {ensured(t, own()), recipe, second(1), second(2), second(3), outdated.OldContent, files},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := plan.LagOf(test.spec, test.recipe, test.made, plan.Update{At: test.updated, Files: test.files}, test.changed); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestUpdate_HasContentThatIsNotNewer(t *testing.T) {
	t.Parallel()
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	for name, test := range map[string]struct {
		updated, changed time.Time
		want             bool
	}{
		"no update":              {time.Time{}, time.Time{}, false},
		"no update, a change":    {time.Time{}, at(1), false},
		"an update, no change":   {at(1), time.Time{}, true},
		"before the last change": {at(1), at(2), false},
		"with the last change":   {at(2), at(2), true},
	} {
		if got := (plan.Update{At: test.updated}).Has(test.changed); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestReplaces(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		created, after time.Time
		want           bool
	}{
		"a Machine that no rollout was asked for":                      {noon, time.Time{}, true},
		"a Machine that is older than the rollout is being replaced":   {noon, noon.Add(time.Second), false},
		"a Machine of the second of the rollout is not replaced by it": {noon, noon, true},
	} {
		if got := plan.Replaces(test.created, test.after); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
