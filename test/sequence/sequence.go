// Package sequence runs random sequences of operations against a system and a model of it. A sequence that fails is
// shrunk, so that what is printed is about as short as a sequence that fails can be. It serves tests.
package sequence

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// The flags of every test that uses this package.
var (
	seed  = flag.Uint64("model.seed", 1, "seed of the first random sequence of model tests")           //nolint:gochecknoglobals // a flag
	steps = flag.Int("model.steps", 0, "operations of each model test; 0 is what the test has chosen") //nolint:gochecknoglobals // a flag
)

// IsLong reports whether a number of operations was asked for, as make test-model does.
func IsLong() bool { return *steps > 0 }

// Operation changes a system of type W.
type Operation[W any] struct {
	Name string
	// Args are what it may be called with. None is the empty argument only.
	Args []string
	// Weight is how often the operation is chosen compared with others; zero is 1.
	Weight int
	// Do carries the operation out. An error is a failure of the system.
	Do func(w W, arg string) error
}

// Test is a system and what is done to it.
type Test[W any] struct {
	// New returns the system that every sequence begins with.
	New        func() W
	Operations []Operation[W]
	// Check returns what is wrong with the system after an operation, or nil.
	Check func(w W) error
	// Finish, if not nil, is called after the last operation.
	Finish func(w W) error
	// Steps is how many operations are carried out, Length how many of them make up one sequence.
	Steps, Length int
}

// Call is an operation with its argument.
type Call struct {
	operation int
	Name, Arg string
}

func (c Call) String() string { return strings.TrimSpace(c.Name + " " + c.Arg) }

// Run runs sequences until one fails. It prints the flags that repeat the failure, and the shrunk sequence.
func (s Test[W]) Run(t *testing.T) {
	t.Helper()
	count := s.Steps
	if *steps > 0 {
		count = *steps
	}
	for i := range max(1, count/s.Length) {
		first := *seed + uint64(i)
		calls := s.generate(first)
		if _, err := s.failure(calls); err == nil {
			continue
		}
		calls = s.shrink(calls)
		_, err := s.failure(calls)
		t.Fatalf("repeat with -run '^%s$' -model.seed=%d -model.steps=%d\n%s\nthen: %v", t.Name(), first, s.Length,
			text(calls), err)
	}
	t.Logf("%d sequences of %d operations, from seed %d", max(1, count/s.Length), s.Length, *seed)
}

// generate returns the sequence of a seed.
func (s Test[W]) generate(seed uint64) []Call {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible
	urn := make([]int, 0, len(s.Operations))
	for i, operation := range s.Operations {
		urn = append(urn, slices.Repeat([]int{i}, max(1, operation.Weight))...)
	}
	calls := make([]Call, s.Length)
	for i := range calls {
		calls[i].operation = urn[random.IntN(len(urn))]
		operation := s.Operations[calls[i].operation]
		calls[i].Name = operation.Name
		if len(operation.Args) > 0 {
			calls[i].Arg = operation.Args[random.IntN(len(operation.Args))]
		}
	}
	return calls
}

// failure carries calls out on a new system. It returns the index of the call that fails, and how.
func (s Test[W]) failure(calls []Call) (at int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	w := s.New()
	for at = range calls {
		if err := s.Operations[calls[at].operation].Do(w, calls[at].Arg); err != nil {
			return at, err
		}
		if err := s.Check(w); err != nil {
			return at, err
		}
	}
	if s.Finish != nil {
		return len(calls) - 1, s.Finish(w)
	}
	return 0, nil
}

// shrink leaves out as many of calls as it can, so that what is left still fails.
func (s Test[W]) shrink(calls []Call) []Call {
	if at, err := s.failure(calls); err != nil {
		calls = calls[:at+1]
	}
	for size := len(calls) / 2; size > 0; {
		shorter := false
		for from := 0; from+size <= len(calls); {
			rest := slices.Concat(calls[:from], calls[from+size:])
			if at, err := s.failure(rest); err != nil {
				calls, shorter = rest[:at+1], true
				continue
			}
			from += size
		}
		if !shorter {
			size /= 2
		}
	}
	return calls
}

func text(calls []Call) string {
	lines := make([]string, len(calls))
	for i, call := range calls {
		lines[i] = fmt.Sprintf("%3d. %s", i+1, call)
	}
	return strings.Join(lines, "\n")
}
