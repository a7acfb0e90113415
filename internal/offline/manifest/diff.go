package manifest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// contextLines is the number of equal lines shown around a change.
const contextLines = 3

// DiffPart is a part of two texts that is compared separately. All but the last end with a line break, if they are not
// empty.
type DiffPart struct{ Old, New string }

// lineChange replaces the lines from..to of the old text by lines.
type lineChange struct {
	from, to int
	added    []string
}

// UnifiedDiff returns the difference of two texts, each the sum of its parts, in the unified format of diff -u, with
// three lines of context, and nothing if all parts are equal. The changes of a part are those of go-udiff; its writer
// is not used, because it knows no parts and counts the lines from the top for each change.
func UnifiedDiff(oldName, newName string, parts ...DiffPart) []byte {
	var changes []lineChange
	lines := make([]string, 0, 8*len(parts)) // of the old text
	for _, p := range parts {
		at, line := 0, len(lines)
		for _, e := range udiff.Lines(p.Old, p.New) {
			line += strings.Count(p.Old[at:e.Start], "\n")
			c := lineChange{line, line + len(splitLines(p.Old[e.Start:e.End])), splitLines(e.New)}
			changes = append(changes, c)
			at, line = e.End, c.to
		}
		lines = append(lines, splitLines(p.Old)...)
	}
	if len(changes) == 0 {
		return nil
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", oldName, newName)
	shift := 0 // from a line of the old text to the same line of the new one
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].from-changes[n-1].to <= 2*contextLines {
			n++
		}
		shift = writeHunk(&out, lines, changes[:n], shift)
		changes = changes[n:]
	}
	return out.Bytes()
}

// splitLines cuts a text after every "\n".
func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		return lines[:len(lines)-1]
	}
	return lines
}

// writeHunk writes changes with their context, and returns the shift of the lines after them.
func writeHunk(out *bytes.Buffer, lines []string, changes []lineChange, before int) (after int) {
	from, to := max(0, changes[0].from-contextLines), min(len(lines), changes[len(changes)-1].to+contextLines)
	after = before
	for _, c := range changes {
		after += len(c.added) - (c.to - c.from)
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", lineRange(from, to), lineRange(from+before, to+after))
	for _, c := range changes {
		writeLines(out, ' ', lines[from:c.from])
		writeLines(out, '-', lines[c.from:c.to])
		writeLines(out, '+', c.added)
		from = c.to
	}
	writeLines(out, ' ', lines[from:to])
	return after
}

// writeLines writes lines and marks one without a line break.
func writeLines(out *bytes.Buffer, prefix byte, lines []string) {
	for _, line := range lines {
		out.WriteByte(prefix)
		out.WriteString(line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// lineRange returns the range of a hunk: first line and length, the length omitted if it is 1. The first line of an
// empty range is the one before it.
func lineRange(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprintf("%d", from+1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}
