package sequence

import (
	"errors"
	"testing"
)

func TestShrink_LeavesWhatTheFailureNeeds(t *testing.T) {
	t.Parallel()
	test := Test[*int]{
		New: func() *int { return new(int) },
		Operations: []Operation[*int]{
			{Name: "add", Do: func(n *int, _ string) error { *n++; return nil }},
			{Name: "print", Args: []string{"a", "b"}, Weight: 5, Do: func(*int, string) error { return nil }},
			{Name: "divide", Do: func(n *int, _ string) error { _ = 1 / (*n - 2); return nil }}, // panics with 2
		},
		Check: func(n *int) error {
			if *n > 2 {
				return errors.New("too much")
			}
			return nil
		},
		Length: 60,
	}
	for seed := range uint64(20) {
		calls := test.shrink(test.generate(seed))
		if len(calls) != 3 {
			t.Errorf("seed %d: shrunk to\n%s", seed, text(calls))
		}
		if _, err := test.failure(calls); err == nil {
			t.Errorf("seed %d: what is left does not fail", seed)
		}
		if again := test.shrink(test.generate(seed)); text(again) != text(calls) {
			t.Errorf("seed %d: another sequence each time", seed)
		}
	}
}
