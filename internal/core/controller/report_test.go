package controller

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestNews_IsWhatDiffersFromTheLastReport(t *testing.T) {
	t.Parallel()
	var n memory
	for i, step := range []struct {
		uid     types.UID
		digest  string
		changed bool
		want    bool
	}{
		{"one", "a", false, false}, // after a restart the condition says the same
		{"one", "a", true, false},  // a cache that is behind
		{"one", "b", true, true},
		{"one", "b", false, false},
		{"one", "a", false, true},
		{"two", "a", true, true},
		{"two", "a", true, false},
		{"one", "a", true, false},
	} {
		if got := n.isNew(step.uid, step.digest, step.changed); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
	n.forget("one")
	if !n.isNew("one", "a", true) {
		t.Error("what was forgotten is no news")
	}
	for i := range 2 * maxNews {
		n.isNew(types.UID(fmt.Sprint(i)), "", false)
	}
	if len(n.news) > maxNews {
		t.Errorf("%d Clusters are remembered", len(n.news))
	}
}
