// Package status prints what the controller has reported about Clusters as tables.
package status

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

// Table prints rows for people, those of a later call below the first ones.
type Table struct {
	// Namespaces adds the column of namespaces.
	Namespaces bool
	// Wide adds the control planes and pools with Machines that are behind, and messages of conditions that are True.
	Wide bool
	// All shows the columns that no row needs, too, with room for their cells: later rows may need both.
	All bool

	widths []int // of the columns, 0 if one is not shown; nil before the first rows
}

// room returns how wide cells of columns usually are.
func room() map[string]int {
	return map[string]int{
		"SECRET": 24, "READY": len("Unknown"), "POOLS": len("not patched"), "PUBLISHED": 12, "WARNING": 19,
	}
}

// Write prints rows as of now, the first ones below the names of the columns.
func (t *Table) Write(out io.Writer, now time.Time, rows ...reported.Row) error {
	lines := append(make([][]string, 0, 1+len(rows)), []string{
		"NAMESPACE", "NAME", "SECRET", "READY", "CONTROL-PLANE", "POOLS", "OLDEST", "PUBLISHED", "WARNING", "BEHIND",
		"PROBLEM", "MESSAGE",
	})
	needed := make([]bool, len(lines[0]))
	for _, r := range rows {
		oldest := ""
		if r.Oldest != nil {
			oldest = duration.HumanDuration(now.Sub(*r.Oldest))
		}
		message := ""
		if r.IsTrue() {
			message = finding.OneLine(r.Message)
		}
		line := []string{
			r.Namespace, r.Name, r.Secret, r.Status, cell(r, r.ControlPlane), cell(r, r.Pools), oldest, r.Published, r.Warning,
			groups(r.Behind), problem(r), message,
		}
		for i, text := range line {
			needed[i] = needed[i] || text != "" && text != cellCurrent
		}
		lines = append(lines, line)
	}
	widths := widthsOf(lines)
	if t.widths != nil {
		return write(out, lines[1:], t.widths)
	}
	t.widths = widths
	for i, name := range lines[0] {
		shown := needed[i] || t.All
		switch name {
		case "NAME", "SECRET", "READY", "PROBLEM":
			shown = true
		case "NAMESPACE":
			shown = t.Namespaces
		case "BEHIND", "MESSAGE":
			shown = t.Wide
		}
		switch {
		case !shown:
			t.widths[i] = 0
		case t.All:
			t.widths[i] = max(widths[i], room()[name])
		}
	}
	return write(out, lines, t.widths)
}

// problem says in words why the row is not as it should be, "" if it is.
func problem(r reported.Row) string {
	var words []string
	if r.Paused {
		words = append(words, "paused: unpause the Cluster (spec.paused, annotation "+clusterv1.PausedAnnotation+")")
	}
	switch {
	case r.Status == "" && r.Disabled:
		words = append(words, "disabled by its label")
	case r.Status == "" && !r.Paused:
		words = append(words, "the manager has not reconciled this Cluster yet")
	case r.Status != "" && !r.IsTrue():
		words = append(words, strings.TrimSuffix(r.Reason+": "+finding.OneLine(r.Message), ": "))
	}
	return strings.Join(words, "; ")
}

// cellCurrent is a cell of a column that need not be shown.
const cellCurrent = "up to date"

// cell is a cell about the Machines of a row.
func cell(r reported.Row, m reported.Machines) string {
	switch m.State {
	case reported.MachinesBehind:
		return fmt.Sprintf("%d behind", m.Behind)
	case reported.UpToDate:
		return cellCurrent
	case reported.NotPatched:
		return "not patched"
	default:
		if r.Status == "" && r.Disabled {
			return "" // nothing compares them
		}
		return "unknown"
	}
}

func groups(behind []outdated.Behind) string {
	texts := make([]string, len(behind))
	for i, one := range behind {
		name := one.Kind + " " + one.Name
		if one.Name == "" {
			name = "others"
		}
		texts[i] = fmt.Sprintf("%s: %d", name, one.Machines)
	}
	return strings.Join(texts, ", ")
}

// MachineTable prints the Machines of groups for people. now is the time that ages are computed for.
func MachineTable(out io.Writer, behind []outdated.Group, now time.Time) error {
	lines := [][]string{{"MACHINE", "OF", "HAS", "CREATED", "AGE"}}
	for _, group := range behind {
		for _, machine := range group.Machines {
			lines = append(lines, []string{
				machine.Name, group.Kind + "/" + group.Name, machine.Lag.String(), machine.Made.UTC().Format(time.RFC3339),
				duration.HumanDuration(now.Sub(machine.Created)),
			})
		}
	}
	return write(out, lines, widthsOf(lines))
}

// widthsOf returns the width of each column. It makes the cells printable.
func widthsOf(lines [][]string) []int {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i := range cells {
			cells[i] = cmp.Or(printable(cells[i]), "-")
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i]))
		}
	}
	return widths
}

// write prints the columns that have a width.
func write(out io.Writer, lines [][]string, widths []int) error {
	var text strings.Builder
	for _, cells := range lines {
		var line strings.Builder
		for i, width := range widths {
			if width > 0 {
				fmt.Fprintf(&line, "%-*s   ", width, cells[i])
			}
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("writing table: %w", err)
	}
	return nil
}

// printable replaces what could move the cursor or pretend to be a row: a tenant writes the annotations of Clusters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
