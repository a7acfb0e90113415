package install

import (
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// TestCheck_AsksForEveryKindOfTheRelease compares the kinds that check --pre asks for with those of the release.
func TestCheck_AsksForEveryKindOfTheRelease(t *testing.T) {
	t.Parallel()
	objects := vocabulary.Kustomize(t, root+"/config/release")
	var asked, released []string
	for _, resource := range check.Released() {
		asked = append(asked, resource.String())
	}
	for _, object := range objects {
		kind := object.GroupVersionKind()
		plural := strings.ToLower(kind.Kind) + "s"
		if base, is := strings.CutSuffix(plural, "ys"); is {
			plural = base + "ies"
		}
		released = append(released, strings.TrimSuffix(plural+"."+kind.Group, "."))
	}
	slices.Sort(asked)
	slices.Sort(released)
	if released = slices.Compact(released); !slices.Equal(asked, released) {
		t.Errorf("check --pre asks for\n%q, and the release has\n%q", asked, released)
	}
}
