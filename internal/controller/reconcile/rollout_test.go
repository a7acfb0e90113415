package reconcile

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRollout_OfTheUserIsAwaitedAndUsedOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	at := now.Add
	for name, test := range map[string]struct {
		after   time.Time
		created []time.Time
		rolls   bool
		later   time.Duration
	}{
		"none":                              {created: []time.Time{at(-time.Hour)}},
		"in an hour":                        {after: at(time.Hour), created: []time.Time{at(-time.Hour)}, later: time.Hour},
		"now":                               {after: now, created: []time.Time{at(-time.Hour)}, rolls: true},
		"past, and not begun":               {after: at(-time.Minute), created: []time.Time{at(-time.Hour), at(-2 * time.Hour)}, rolls: true},
		"past, and one Machine is replaced": {after: at(-time.Minute), created: []time.Time{at(-time.Hour), at(-time.Second)}},
		"past, and done":                    {after: at(-time.Hour), created: []time.Time{at(-time.Minute)}},
	} {
		o := Object{Running: true, Rollout: rolloutOf(metav1.NewTime(test.after), test.created)}
		if got := o.RollsNow(now); got != test.rolls {
			t.Errorf("%s: rolls %v, want %v", name, got, test.rolls)
		}
		if got := o.RollsIn(now); got != test.later {
			t.Errorf("%s: rolls in %v, want %v", name, got, test.later)
		}
	}
}
