package world_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

func TestFirstMade_IsTheEarliestTime(t *testing.T) {
	t.Parallel()
	var m world.Memory
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		uid        types.UID
		made, want time.Time
	}{
		{"one", noon, noon},
		{"one", noon.Add(time.Minute), noon},
		{"two", noon.Add(time.Minute), noon.Add(time.Minute)},
		{"one", noon.Add(-time.Minute), noon.Add(-time.Minute)},
	} {
		if got := m.FirstMade(step.uid, step.made); !got.Equal(step.want) {
			t.Errorf("%s made at %v: got %v, want %v", step.uid, step.made, got, step.want)
		}
	}
}
