package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// TestApply_DoesWhatPlanSays has a node go from each set of default targets to each other, with another password, other
// certificates and another script. patch.ChangeOf says to users what that changes before it is done.
func TestApply_DoesWhatPlanSays(t *testing.T) {
	t.Parallel()
	old, changed := data(t, "old", "CA1\n", "script1\n"), data(t, rude, "CA2\n", "script2\n")
	sets := targetSets()
	for _, from := range sets {
		for _, to := range sets {
			t.Run(fmt.Sprint(from, " to ", to), func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, withTargets(t, old, from...))
				if len(from) > 0 {
					d.put(contract.PathSetup, &inode{content: []byte(patch.Setup() + "# of an earlier version\n"), mode: 0o755})
				}
				before := d.files()
				d.brings(t, withTargets(t, changed, to...))
				want, after := patch.ChangeOf(patch.Spec{Files: recipeOf(t, from).Files}, recipeOf(t, to), ""), d.files()
				var got patch.NodeChange
				for _, path := range patch.ManagedPaths() {
					was, had := before[path]
					is, has := after[path]
					switch {
					case !had && has:
						got.Adds = append(got.Adds, path)
					case had && !has:
						got.Removes = append(got.Removes, path)
					case was != is:
						got.Replaces = append(got.Replaces, path)
					}
				}
				for _, call := range d.calls {
					if services, restarts := strings.CutPrefix(call, "restart "); restarts {
						got.Restarts = strings.Split(services, ",")
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-plan +apply):\n%s", diff)
				}
			})
		}
	}
}

// targetSets are all sets of default targets. The empty set is a node without the product.
func targetSets() [][]contract.Target {
	all := contract.Targets()
	sets := make([][]contract.Target, 0, 1<<len(all))
	for bits := range 1 << len(all) {
		var set []contract.Target
		for i, target := range all {
			if bits>>i&1 == 1 {
				set = append(set, target)
			}
		}
		sets = append(sets, set)
	}
	return sets
}

func recipeOf(t *testing.T, targets []contract.Target) patch.Recipe {
	t.Helper()
	if len(targets) == 0 {
		return patch.Recipe{}
	}
	recipe, err := patch.NewRecipe(patch.Options{Targets: slices.Clone(targets), SecretName: "files"})
	if err != nil {
		t.Fatal(err)
	}
	return recipe
}
