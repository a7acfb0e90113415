package lint

import (
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// line returns the line of the input that where is about, counted from 1: of the entry of a list, of its key or
// field, or else the one at which the object begins.
func (l *linter) line(o *manifest.Object, where string) int {
	for _, path := range paths(where) {
		if place, ok := o.Find(path); ok {
			return l.entryLine(o, place, where)
		}
	}
	return o.Line()
}

// paths returns the fields that may hold what where names, the most exact one first.
func paths(where string) [][]string {
	word, rest, _ := strings.Cut(where, " ")
	name, _, _ := strings.Cut(rest, " ")
	if key, err := strconv.Unquote(name); err == nil {
		name = key
	}
	switch {
	case word == "key":
		return [][]string{{"stringData", name}, {"data", name}}
	case word == "keys":
		return [][]string{{"stringData"}, {"data"}}
	case word == "annotation", word == "label":
		return [][]string{{"metadata", word + "s", name}}
	case strings.HasPrefix(word, "data."), strings.HasPrefix(word, "stringData."):
		field, key, _ := strings.Cut(word, ".")
		return [][]string{{field, key}}
	case strings.HasPrefix(word, "spec."):
		path := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(word), ".")
		var all [][]string
		for ; len(path) > 1; path = path[:len(path)-1] {
			all = append(all, path)
		}
		return all
	}
	return nil
}

// block is a literal block ("|") of an object, by its line.
type block struct {
	object *manifest.Object
	line   int
}

// entryLine returns the line of an entry of a literal block ("|"), and that of the key otherwise. In other styles a
// line of the value is not a line of the file.
func (l *linter) entryLine(o *manifest.Object, place manifest.Place, where string) int {
	_, number, ok := strings.Cut(where, " entry ")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || place.Block == 0 {
		return place.Line
	}
	key := block{o, place.Block}
	lines, known := l.entries[key]
	if !known {
		lines = entryLines(place.Text)
		l.entries[key] = lines
	}
	if n < 1 || n > len(lines) {
		return place.Line
	}
	return place.Block + lines[n-1]
}

// entryLines returns the line of each entry of a list, counted from 0, as package noproxy reads it.
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
