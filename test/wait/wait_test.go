package wait

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil_WaitsAsLongAsAnythingMoves(t *testing.T) {
	t.Parallel()
	never := time.Duration(1<<62 - 1)
	for name, test := range map[string]struct {
		// comes is when what is waited for is there, moves until when something moves each second, ends when the
		// program ends.
		comes, moves, ends time.Duration
		want               error
		after              time.Duration
	}{
		"it is there":                          {},
		"it comes while nothing moves":         {comes: 9 * time.Second, after: 9 * time.Second},
		"it never comes and nothing moves":     {comes: never, want: ErrStill, after: 10 * time.Second},
		"it comes late and something moves":    {comes: time.Hour, moves: time.Hour, after: time.Hour},
		"it comes too late after the movement": {comes: time.Hour, moves: time.Minute, want: ErrStill, after: 70 * time.Second},
		"it never comes though all moves":      {comes: never, moves: never, ends: time.Hour, want: ErrLate, after: time.Hour - margin + soon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now() //nolint:forbidigo // that of the bubble
				var deadline time.Time
				if test.ends > 0 {
					deadline = begin.Add(test.ends)
				}
				rule := Rule{Still: 10 * time.Second, Poll: soon, Moved: func() (int, error) {
					return int(min(time.Since(begin), test.moves) / time.Second), nil
				}}
				err := rule.until(t.Context(), deadline, func() string {
					if time.Since(begin) < test.comes {
						return "50% of it"
					}
					return ""
				})
				if !errors.Is(err, test.want) || time.Since(begin) != test.after {
					t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), test.want, test.after)
				}
				if err != nil && !strings.HasSuffix(err.Error(), ": 50% of it") {
					t.Errorf("%q does not end with the problem", err)
				}
			})
		})
	}
}

func TestUntil_LooksLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now() //nolint:forbidigo // that of the bubble
		var looks []time.Duration
		rule := Rule{Still: 300 * time.Millisecond, Poll: 100 * time.Millisecond}
		err := rule.until(t.Context(), time.Time{}, func() string {
			looks = append(looks, time.Since(begin)/time.Millisecond)
			return "away"
		})
		if want := []time.Duration{0, 20, 60, 140, 240, 340}; !errors.Is(err, ErrStill) || !slices.Equal(looks, want) {
			t.Errorf("%v, looks after %v ms, want %v", err, looks, want)
		}
	})
}

func TestUntil_EndsWithTheTest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rule := Rule{Still: time.Hour, Poll: time.Hour, Moved: func() (int, error) { return 0, nil }}
	if err := rule.until(ctx, time.Time{}, func() string { return "missing" }); err == nil ||
		!strings.Contains(err.Error(), "missing") {
		t.Errorf("%v, want the problem", err)
	}
	broken := errors.New("no log")
	rule.Moved = func() (int, error) { return 0, broken }
	if err := rule.until(t.Context(), time.Time{}, func() string { return "missing" }); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

func TestUntil_EndsAfterStillWithoutMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now() //nolint:forbidigo // that of the bubble
		err := Rule{Still: time.Minute, Poll: soon}.until(t.Context(), time.Time{}, func() string { return "missing" })
		if !errors.Is(err, ErrStill) || time.Since(begin) != time.Minute {
			t.Errorf("%v after %s, want %v after a minute", err, time.Since(begin), ErrStill)
		}
	})
}
