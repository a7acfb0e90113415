// Package status prints what the controller has reported about Clusters as tables.
package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

// Table prints rows for people.
type Table struct {
	// Namespaces adds the column of namespaces.
	Namespaces bool
	// Wide adds details about Machines that are behind, and the message of the condition.
	Wide bool
	// Now is the time that ages are computed for.
	Now time.Time
}

// Write prints rows below the names of the columns, which are left out with header false.
func (t Table) Write(out io.Writer, header bool, rows ...reported.Row) error {
	lines := make([][]string, 0, len(rows)+1)
	if header {
		lines = append(lines, t.columns("NAMESPACE", "NAME", "SECRET", "CONTROL-PLANE", "POOLS", "OLDEST",
			"READY", "REASON", "PUBLISHED", "WARNING", "BEHIND", "MESSAGE"))
	}
	for _, r := range rows {
		oldest := ""
		if r.Oldest != nil {
			oldest = duration.HumanDuration(t.Now.Sub(*r.Oldest))
		}
		reason := r.Reason
		if r.Paused {
			reason = strings.TrimSpace(reason + " (paused)")
		}
		lines = append(lines, t.columns(r.Namespace, r.Name, r.Secret, cell(r.ControlPlane), cell(r.Pools),
			oldest, r.Status, reason, r.Published, r.Warning, groups(r.Behind), finding.OneLine(r.Message)))
	}
	return write(out, lines)
}

// columns leaves out the optional columns that are off: the first, and the last two.
func (t Table) columns(all ...string) []string {
	if !t.Wide {
		all = all[:len(all)-2]
	}
	if !t.Namespaces {
		all = all[1:]
	}
	return all
}

// cell is a cell of the table.
func cell(m reported.Machines) string {
	switch m.State {
	case reported.MachinesBehind:
		return fmt.Sprintf("%d behind", m.Behind)
	case reported.UpToDate:
		return "up to date"
	case reported.NotPatched:
		return "not patched"
	default:
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
	return write(out, lines)
}

func write(out io.Writer, lines [][]string) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, cells := range lines {
		for i, text := range cells {
			if cells[i] = printable(text); cells[i] == "" {
				cells[i] = "-"
			}
		}
		if _, err := fmt.Fprintln(table, strings.Join(cells, "\t")); err != nil {
			return fmt.Errorf("writing table: %w", err)
		}
	}
	if err := table.Flush(); err != nil {
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
