//go:build node

// Package report is the table of a run on nodes: what was done, how long it took, and what was seen.
package report

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// reportVariable names a file that reports are appended to, for make, whose summary shows no output of tests that pass.
const reportVariable = "CAPI_PROXY_PATCHER_NODE_REPORT"

// progressVariable names a file that every step is written to as it begins and ends, for a visitor who waits.
const progressVariable = "CAPI_PROXY_PATCHER_NODE_PROGRESS"

// Report is the table of a run.
type Report struct {
	note string
	rows []row
}

// Progress informs a waiting visitor, if there is one.
func Progress(t *testing.T, format string, args ...any) {
	t.Helper()
	if name := os.Getenv(progressVariable); name != "" {
		appendTo(t, name, fmt.Sprintf(format, args...)+"\n")
	}
}

// New begins a table. Its last row is the whole run, until the end of the test, under the given name; note is a line
// below the table. It is printed when the test ends.
func New(t *testing.T, total, note string) *Report {
	t.Helper()
	r := &Report{note: note}
	t.Cleanup(func() { r.write(t) })
	r.Step(t, total)
	return r
}

type row struct {
	step    string
	seconds float64
	seen    []string
}

// Step adds a row, whose time ends with the test.
func (r *Report) Step(t *testing.T, name string) {
	t.Helper()
	begin := time.Now() //nolint:forbidigo // how long a step takes is what is measured
	r.rows = append(r.rows, row{step: name})
	index := len(r.rows) - 1
	if index > 0 {
		Progress(t, "==> %s", name)
	}
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

// Saw notes what was seen in a step.
func (r *Report) Saw(t *testing.T, step, format string, args ...any) {
	t.Helper()
	Progress(t, "    "+format, args...)
	for i := range r.rows {
		if r.rows[i].step == step {
			r.rows[i].seen = append(r.rows[i].seen, fmt.Sprintf(format, args...))
		}
	}
}

// write prints the table.
func (r *Report) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%-85s %7s  %s\n", "step", "seconds", "seen")
	for _, entry := range slices.Concat(r.rows[1:], r.rows[:1]) {
		fmt.Fprintf(&b, "%-85s %7.1f  %s\n", entry.step, entry.seconds, strings.Join(entry.seen, "; "))
	}
	fmt.Fprintf(&b, "\n%s\n\n", r.note)
	t.Log("\n" + b.String())
	if name := os.Getenv(reportVariable); name != "" {
		appendTo(t, name, b.String())
	}
}

// appendTo adds text to a file that other packages write their tables to.
func appendTo(t *testing.T, name, text string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // for everyone to read
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := file.WriteString(text); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
