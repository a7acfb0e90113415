package lint

import (
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/manifest"
)

// parsed is an object with the lines of its nodes.
type parsed struct {
	node  *yaml.Node // nil if it cannot be told
	shift int        // what to add to the lines of nodes
}

// line returns the line of the input that where is about, counted from 1: of the entry of a list, of its key or field, or else the one at
// which the object begins.
func (l *linter) line(o *manifest.Object, where string) int {
	p, known := l.parsed[o]
	if !known {
		p = l.parse(o)
		l.parsed[o] = p
	}
	if p.node == nil {
		return o.Line()
	}
	for _, path := range paths(where) {
		if at, value := find(p.node, path); at > 0 {
			return at + l.entryLine(value, at, where) + p.shift
		}
	}
	return o.Line()
}

// parse finds the nodes of an object.
func (l *linter) parse(o *manifest.Object) parsed {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(o.Text()), &document); err != nil || len(document.Content) == 0 {
		return parsed{} // for example a flow mapping with a variable
	}
	object := document.Content[0]
	if _, items := find(object, []string{"items"}); items != nil && items.Kind == yaml.SequenceNode && strings.HasSuffix(kindOf(object), "List") {
		first := slices.IndexFunc(l.objects, func(other *manifest.Object) bool { return sameDocument(o, other) })
		i := l.order[o] - first
		if i >= len(items.Content) {
			return parsed{}
		}
		object = items.Content[i]
	}
	return parsed{object, o.Line() - object.Line}
}

func kindOf(object *yaml.Node) string {
	if _, kind := find(object, []string{"kind"}); kind != nil {
		return kind.Value
	}
	return ""
}

func sameDocument(a, b *manifest.Object) bool {
	return a.File() == b.File() && a.Document() == b.Document()
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

// find returns the line of the last key of a path, or of the item, and its value.
func find(node *yaml.Node, path []string) (line int, value *yaml.Node) {
	for _, step := range path {
		switch node.Kind {
		case yaml.MappingNode:
			i := 0
			for i < len(node.Content) && node.Content[i].Value != step {
				i += 2
			}
			if i >= len(node.Content) {
				return 0, nil
			}
			line, node = node.Content[i].Line, node.Content[i+1]
		case yaml.SequenceNode:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(node.Content) {
				return 0, nil
			}
			node = node.Content[i]
			line = node.Line
		default:
			return 0, nil
		}
	}
	return line, node
}

// entryLine returns how many lines below its key an entry of a literal block ("|") stands. In other styles a line of the value is not a
// line of the file.
func (l *linter) entryLine(value *yaml.Node, keyLine int, where string) int {
	_, number, ok := strings.Cut(where, " entry ")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || value.Style&yaml.LiteralStyle == 0 {
		return 0
	}
	lines, known := l.entries[value]
	if !known {
		lines = entryLines(value.Value)
		l.entries[value] = lines
	}
	if n < 1 || n > len(lines) {
		return 0
	}
	return value.Line - keyLine + 1 + lines[n-1]
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
