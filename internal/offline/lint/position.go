package lint

import (
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// line returns the line of the input that a finding in o is about, counted from 1: that of the entry of a list, of its
// key or field, or else of the beginning of the object.
func (l *linter) line(o *manifest.Object, at finding.Place) int {
	for _, path := range paths(at) {
		if place, ok := o.Find(path); ok {
			return l.entryLine(o, place, at)
		}
	}
	return o.Line()
}

// paths returns the fields that may hold the value at a place, the most exact one first.
func paths(at finding.Place) [][]string {
	path := make([]string, len(at.Path))
	for i, step := range at.Path {
		path[i] = step.Name
	}
	switch {
	case at.Kind == finding.InKeys:
		return [][]string{{"stringData"}, {"data"}}
	case at.Kind == finding.InKey && len(path) == 1:
		return [][]string{{"stringData", path[0]}, {"data", path[0]}}
	}
	var all [][]string
	for ; len(path) > 1; path = path[:len(path)-1] {
		all = append(all, path)
	}
	return all
}

// block is a literal block ("|") of an object, by its line.
type block struct {
	object *manifest.Object
	line   int
}

// entryLine returns the line of an entry of a literal block ("|"), and that of the key otherwise. In other styles the
// lines of the value are not lines of the file.
func (l *linter) entryLine(o *manifest.Object, place manifest.Place, at finding.Place) int {
	if at.Entry == 0 || at.Path[0].Name != contract.KeyNoProxy || place.Block == 0 {
		return place.Line
	}
	key := block{o, place.Block}
	lines, known := l.entries[key]
	if !known {
		lines = entryLines(place.Text)
		l.entries[key] = lines
	}
	if at.Entry > len(lines) {
		return place.Line
	}
	return place.Block + lines[at.Entry-1]
}

// entryLines returns the line of each entry of a list, counted from 0, by the rules of package noproxy.
func entryLines(text string) []int {
	var lines []int
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimPrefix(strings.TrimLeft(line, " \t"), "- ")
		for range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune(", \t\r", r) }) {
			lines = append(lines, i)
		}
	}
	return lines
}
