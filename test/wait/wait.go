// Package wait holds the rule by which tests wait for what others do: as long as anything moves. A time by which all
// has to be done is right on one machine only, and a busy one fails tests in which nothing is wrong.
package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Rule is how a package of tests waits.
type Rule struct {
	// Still is after which time without any movement a wait is given up.
	Still time.Duration
	// Poll is the longest pause between two looks.
	Poll time.Duration
	// Moved returns a number that grows whenever something happens that may end the wait. Without it a wait lasts for
	// Still.
	Moved func() (int, error)
}

// soon is the first pause between two looks. Each pause is twice the one before it, up to Rule.Poll.
const soon = 20 * time.Millisecond

// margin is how long before the end of the test program a wait ends, so that its problem is reported.
const margin = 20 * time.Second

// ErrStill is the error of a wait in which nothing moves any more, ErrLate that of a wait that ends because the test
// program ends.
var (
	ErrStill = errors.New("nothing has moved")
	ErrLate  = errors.New("the test program ends soon")
)

// Until waits until problem returns "". It fails the test, with what and the last problem, if nothing has moved for a
// while.
func (r Rule) Until(t *testing.T, what string, problem func() string) {
	t.Helper()
	deadline, _ := t.Deadline()
	if err := r.until(t.Context(), deadline, problem); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// until waits until problem returns "". deadline is when the test program ends, zero for never.
func (r Rule) until(ctx context.Context, deadline time.Time, problem func() string) error {
	last, since := -1, time.Time{}
	for pause := min(soon, r.Poll); ; pause = min(2*pause, r.Poll) {
		found := problem()
		if found == "" {
			return nil
		}
		moved := 0
		if r.Moved != nil {
			var err error
			if moved, err = r.Moved(); err != nil {
				return fmt.Errorf("looking whether anything moves: %w", err)
			}
		}
		now := time.Now() //nolint:forbidigo // a test waits in real time
		if moved != last {
			last, since = moved, now
		}
		switch {
		case now.Sub(since) >= r.Still:
			return fmt.Errorf("%w for %s: %s", ErrStill, r.Still, found)
		case !deadline.IsZero() && deadline.Sub(now) < margin:
			return fmt.Errorf("%w: %s", ErrLate, found)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the test was stopped: %s", found)
		case <-time.After(pause):
		}
	}
}
