//go:build node

package node_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// reportVariable names a file that the report is written to, for make, whose summary shows no output of tests that pass.
const reportVariable = "CAPI_PROXY_PATCHER_NODE_REPORT"

// total is the step that is the whole run.
const total = "all together"

// report is the table of a run.
type report struct{ rows []row }

type row struct {
	step    string
	seconds float64
	seen    []string
}

// step adds a row, whose time ends with the test.
func (r *report) step(t *testing.T, name string) {
	t.Helper()
	begin := time.Now() //nolint:forbidigo // how long a step takes is what is measured
	r.rows = append(r.rows, row{step: name})
	index := len(r.rows) - 1
	t.Cleanup(func() {
		entry := &r.rows[index]
		entry.seconds = time.Since(begin).Seconds()
		switch {
		case t.Failed():
			entry.seen = append(entry.seen, "FAILED")
		case t.Skipped():
			entry.seen = append(entry.seen, "skipped")
		}
	})
}

// saw notes what was seen in a step.
func (r *report) saw(step string, format string, args ...any) {
	for i := range r.rows {
		if r.rows[i].step == step {
			r.rows[i].seen = append(r.rows[i].seen, fmt.Sprintf(format, args...))
		}
	}
}

// write prints the table.
func (r *report) write(t *testing.T) {
	t.Helper()
	if len(r.rows) == 0 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-85s %7s  %s\n", "step", "seconds", "seen")
	for _, entry := range slices.Concat(r.rows[1:], r.rows[:1]) {
		fmt.Fprintf(&b, "%-85s %7.1f  %s\n", entry.step, entry.seconds, strings.Join(entry.seen, "; "))
	}
	b.WriteString("\nNot proven here: what of Flatcar is not Ignition, such as its trust store and its read-only /usr.\n")
	t.Log("\n" + b.String())
	if file := os.Getenv(reportVariable); file != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil { //nolint:gosec // for everyone to read
			t.Error(err)
		}
	}
}
