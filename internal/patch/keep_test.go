package patch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

func TestKeep(t *testing.T) {
	t.Parallel()
	patched := func(text string) patch.Spec {
		return api.Spec(ensure(t, parse(t, text), recipe(t, patch.Options{})))
	}
	commands := patched("").PreKubeadmCommands
	for name, test := range map[string]struct {
		stored, asked patch.Spec
		want          []string // preKubeadmCommands
		files         int
	}{
		"a manifest without them": {
			stored: patched(ownUser), asked: api.Spec(parse(t, ownUser)),
			want: patched(ownUser).PreKubeadmCommands, files: 6,
		},
		"a spec that had none gets none": {
			stored: api.Spec(parse(t, ownUser)), asked: patched(ownUser),
			want: api.Spec(parse(t, ownUser)).PreKubeadmCommands, files: 1,
		},
		"commands of a user who had none stand between the first and the last": {
			stored: patched(""), asked: patch.Spec{PreKubeadmCommands: []string{"echo new"}},
			want: slices.Concat(commands[:2], []string{"echo new"}, commands[2:]), files: 5,
		},
		"a user who has none any more": {
			stored: patched("preKubeadmCommands: [echo own]"), asked: patch.Spec{}, want: commands, files: 5,
		},
		"a file of the user at a managed path": {
			stored: patched(""), asked: patch.Spec{Files: []patch.File{{Path: contract.PathSetup + "/", Content: "mine"}}},
			want: commands, files: 5,
		},
		"other values of managed entries": {
			stored: patched(""), want: commands, files: 5,
			asked: api.Spec(ensure(t, document{},
				recipe(t, patch.Options{SecretName: "other"}))),
		},
	} {
		edits := patch.Keep(test.stored, test.asked)
		got := patch.Apply(test.asked, edits)
		if diff := cmp.Diff(test.want, got.PreKubeadmCommands, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: commands (-want +got):\n%s", name, diff)
		}
		if len(got.Files) != test.files {
			t.Errorf("%s: %d files, want %d: %v", name, len(got.Files), test.files, got.Files)
		}
		for _, f := range got.Files {
			if f.ContentFrom.Name == "other" {
				t.Errorf("%s: file %s has the value that was asked for", name, f.Path)
			}
		}
	}
}

func TestOwn_LeavesOutManagedEntriesOnly(t *testing.T) {
	t.Parallel()
	user := parse(t, ownUser)
	patched := ensure(t, user, recipe(t, patch.Options{}))
	if diff := cmp.Diff(map[string]any(user), patch.Own(patched)); diff != "" {
		t.Errorf("(-user +own):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{}, patch.Own(nil)); diff != "" {
		t.Errorf("nothing (-want +got):\n%s", diff)
	}
}

// FuzzKeep mixes entries of the user and of ours in any order. Writing back the user's part of a spec, with our entries
// lost, moved or doubled, gives the spec again; and what edits do to the view is what they do to the object.
func FuzzKeep(f *testing.F) {
	for _, seed := range []uint64{0, 1, 42, 1 << 63} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible on purpose
		full := recipe(t, patch.Options{})
		var files, commands []any
		for _, file := range full.Files {
			entry := map[string]any{
				"path": file.Path, "owner": file.Owner, "permissions": file.Permissions,
				"content": file.Content,
			}
			if file.Content == "" {
				delete(entry, "content")
				entry["contentFrom"] = map[string]any{"secret": map[string]any{"name": "s", "key": file.ContentFrom.Key}}
			}
			files = append(files, entry)
		}
		for _, command := range slices.Concat(full.First, full.Last) {
			commands = append(commands, command)
		}
		stored, asked, other := document{}, document{}, document{}
		for list, managed := range map[string][]any{
			"files": files, "preKubeadmCommands": commands,
			"postKubeadmCommands": commands[:1],
		} {
			var own []any
			for i := range random.IntN(4) {
				if list == "files" {
					own = append(own, map[string]any{"path": fmt.Sprintf("/etc/%d", i), "x": "kept"})
				} else {
					own = append(own, fmt.Sprintf("echo %d", i))
				}
			}
			mix := func(own []any, most int) []any {
				mixed := slices.Clone(own)
				for _, i := range random.Perm(len(managed))[:random.IntN(min(most, len(managed))+1)] {
					mixed = slices.Insert(mixed, random.IntN(len(mixed)+1), managed[i])
				}
				return mixed
			}
			for d, mixed := range map[*document][]any{
				&stored: mix(own, 9), &asked: mix(own, 2),
				&other: mix(own[:len(own)/2], 2),
			} {
				if len(mixed) > 0 {
					(*d)[list] = mixed
				}
			}
		}
		before, now := api.Spec(stored), api.Spec(asked)
		edits := patch.Keep(before, now)
		if diff := cmp.Diff(map[string]any(stored), map[string]any(apply(t, asked, edits)),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the user changed nothing (-stored +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, patch.Apply(now, edits), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Apply (-stored +got):\n%s", diff)
		}
		kept := apply(t, other, patch.Keep(before, api.Spec(other)))
		if diff := cmp.Diff(patch.Own(other), patch.Own(kept)); diff != "" {
			t.Errorf("the user's part changed (-want +got):\n%s", diff)
		}
		if again := patch.Keep(before, api.Spec(kept)); len(again) > 0 {
			t.Errorf("a second Keep: %v", again)
		}
	})
}
