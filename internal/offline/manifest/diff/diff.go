// Package diff compares texts line by line.
package diff

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// context is the number of equal lines shown around a change.
const context = 3

// Part is a part of two texts that is compared by itself. All but the last end with a line break, if they are not
// empty.
type Part struct{ Old, New string }

// Unified returns the difference of two texts, each the sum of its parts, in the unified format of diff -u, with
// three lines of context, and nothing if all parts are equal. Within a part it has the fewest possible lines (E. W.
// Myers, An O(ND) Difference Algorithm, 1986, the linear space variant); the time is proportional to the number of
// lines times the number of changes of a part.
func Unified(oldName, newName string, parts ...Part) []byte {
	d := newDiffer(parts)
	if !slices.Contains(d.removed, true) && !slices.Contains(d.added, true) {
		return nil
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", oldName, newName)
	for _, h := range d.hunks() {
		d.write(&out, h)
	}
	return out.Bytes()
}

// differ compares two sequences of lines, each line represented by a number.
type differ struct {
	oldLines, newLines []string
	a, b               []int
	removed, added     []bool // by index into a and b
	forward, backward  []int  // furthest points per diagonal, see middle
}

// newDiffer numbers the lines of two texts, equal lines equally, and compares them part by part.
func newDiffer(parts []Part) *differ {
	d := &differ{}
	numbers := make(map[string]int)
	number := func(lines []string) []int {
		result := make([]int, len(lines))
		for i, line := range lines {
			n, ok := numbers[line]
			if !ok {
				n = len(numbers)
				numbers[line] = n
			}
			result[i] = n
		}
		return result
	}
	ends := make([][2]int, 0, len(parts))
	for _, p := range parts {
		d.oldLines, d.newLines = append(d.oldLines, splitLines(p.Old)...), append(d.newLines, splitLines(p.New)...)
		ends = append(ends, [2]int{len(d.oldLines), len(d.newLines)})
	}
	d.a, d.b = number(d.oldLines), number(d.newLines)
	d.removed, d.added = make([]bool, len(d.a)), make([]bool, len(d.b))
	size := 2*(len(d.a)+len(d.b)) + 3
	d.forward, d.backward = make([]int, size), make([]int, size)
	a, b := 0, 0
	for _, end := range ends {
		d.compare(a, end[0], b, end[1])
		a, b = end[0], end[1]
	}
	return d
}

// splitLines cuts a text behind every "\n".
func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		return lines[:len(lines)-1]
	}
	return lines
}

// compare marks the lines of a[a0:a1] and b[b0:b1] that do not belong to a longest common subsequence.
func (d *differ) compare(a0, a1, b0, b1 int) {
	for a0 < a1 && b0 < b1 && d.a[a0] == d.b[b0] {
		a0, b0 = a0+1, b0+1
	}
	for a0 < a1 && b0 < b1 && d.a[a1-1] == d.b[b1-1] {
		a1, b1 = a1-1, b1-1
	}
	if a0 == a1 || b0 == b1 {
		for i := a0; i < a1; i++ {
			d.removed[i] = true
		}
		for i := b0; i < b1; i++ {
			d.added[i] = true
		}
		return
	}
	x, y := d.middle(a0, a1, b0, b1)
	d.compare(a0, x, b0, y)
	d.compare(x, a1, y, b1)
}

// middle returns a point on a shortest edit path at which the problem can be cut in two. It follows the furthest reaching
// paths from both corners until they meet. A path is stored under its diagonal x-y, relative to the corner it comes from.
func (d *differ) middle(a0, a1, b0, b1 int) (x, y int) {
	n, m := a1-a0, b1-b0
	delta, zero := n-m, len(d.forward)/2
	d.forward[zero+1], d.backward[zero+1] = 0, 0
	for steps := 0; ; steps++ {
		for k := -steps; k <= steps; k += 2 {
			x := furthest(d.forward, zero+k, k == -steps, k == steps)
			start := x
			for x < n && x-k < m && x-k >= 0 && d.a[a0+x] == d.b[b0+x-k] {
				x++
			}
			d.forward[zero+k] = x
			// The paths backward have made one step less.
			if opposite := delta - k; delta%2 != 0 && opposite > -steps && opposite < steps && x+d.backward[zero+opposite] >= n {
				return a0 + start, b0 + start - k
			}
		}
		for k := -steps; k <= steps; k += 2 {
			x := furthest(d.backward, zero+k, k == -steps, k == steps)
			start := x
			for x < n && x-k < m && x-k >= 0 && d.a[a1-1-x] == d.b[b1-1-x+k] {
				x++
			}
			d.backward[zero+k] = x
			if opposite := delta - k; delta%2 == 0 && opposite >= -steps && opposite <= steps && x+d.forward[zero+opposite] >= n {
				return a1 - start, b1 - start + k
			}
		}
	}
}

// furthest returns where a path of one more step begins on a diagonal: one line down from the diagonal above or one to
// the right from the diagonal below.
func furthest(ends []int, at int, lowest, highest bool) int {
	if lowest || !highest && ends[at-1] < ends[at+1] {
		return ends[at+1]
	}
	return ends[at-1] + 1
}

// hunk is a pair of line ranges with their context.
type hunk struct{ a0, a1, b0, b1 int }

// hunks returns the changes, those with at most twice the context between them together.
func (d *differ) hunks() []hunk {
	var hunks []hunk
	for i, j := 0, 0; i < len(d.a) || j < len(d.b); {
		if i < len(d.a) && j < len(d.b) && !d.removed[i] && !d.added[j] {
			i, j = i+1, j+1
			continue
		}
		h := hunk{a0: i, b0: j}
		for i < len(d.a) && d.removed[i] {
			i++
		}
		for j < len(d.b) && d.added[j] {
			j++
		}
		h.a1, h.b1 = i, j
		if last := len(hunks) - 1; last >= 0 && h.a0-hunks[last].a1 <= 2*context {
			hunks[last].a1, hunks[last].b1 = h.a1, h.b1
		} else {
			hunks = append(hunks, h)
		}
	}
	for i := range hunks {
		h := &hunks[i]
		before := min(context, h.a0)
		after := min(context, len(d.a)-h.a1)
		h.a0, h.b0, h.a1, h.b1 = h.a0-before, h.b0-before, h.a1+after, h.b1+after
	}
	return hunks
}

// write writes one hunk.
func (d *differ) write(out *bytes.Buffer, h hunk) {
	fmt.Fprintf(out, "@@ -%s +%s @@\n", lineRange(h.a0, h.a1), lineRange(h.b0, h.b1))
	for i, j := h.a0, h.b0; i < h.a1 || j < h.b1; {
		switch {
		case i < h.a1 && d.removed[i]:
			writeLine(out, '-', d.oldLines[i])
			i++
		case j < h.b1 && d.added[j]:
			writeLine(out, '+', d.newLines[j])
			j++
		default:
			writeLine(out, ' ', d.oldLines[i])
			i, j = i+1, j+1
		}
	}
}

// writeLine writes one line and says if it has no line break.
func writeLine(out *bytes.Buffer, prefix byte, line string) {
	out.WriteByte(prefix)
	out.WriteString(line)
	if !strings.HasSuffix(line, "\n") {
		out.WriteString("\n\\ No newline at end of file\n")
	}
}

// lineRange returns the range of a hunk: first line and length, the length left out if it is 1. The first line of an
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
