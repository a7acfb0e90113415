package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// start is a key or an item of a list in a text.
type start struct {
	node   *yaml.Node // of the key or item
	line   int        // from 1; that of the dash of an item
	column int        // from 0; that of the dash of an item
	item   bool
	around int // index of the key or item around it, -1 if there is none
}

// places returns the keys and items of a text in order, or its root if it has none. The root is that of the parsed
// text; the nodes of the result are those of a tree of the same form.
func (t text) places(root, tree *yaml.Node) []start {
	var all []start
	var visit func(n, of *yaml.Node, around int)
	visit = func(n, of *yaml.Node, around int) {
		stride := 1
		if n.Kind == yaml.MappingNode {
			stride = 2
		}
		for i := 0; i < len(n.Content); i += stride {
			s := start{of.Content[i], n.Content[i].Line, n.Content[i].Column - 1, stride == 1, around}
			if s.item {
				if line := t.dashLine(n, i); line > 0 {
					s.line, s.column = line, n.Column-1
				}
			}
			all = append(all, s)
			visit(n.Content[i+stride-1], of.Content[i+stride-1], len(all)-1)
		}
	}
	visit(root, tree, -1)
	if len(all) == 0 {
		return []start{{node: tree, line: root.Line, around: -1}}
	}
	return all
}

// dashLine returns the line of the dash of an item, 0 if the dash is not the first thing on its line.
func (t text) dashLine(list *yaml.Node, item int) int {
	column := list.Column - 1
	for line := list.Content[item].Line; line >= list.Line; line-- {
		content := t.line(line)
		if indent(content) == column && isMarker(content[column:], "-") {
			return line
		}
	}
	return 0
}

// printed is a tree in print: its lines, and where its nodes are.
type printed struct {
	lines []string
	at    map[*yaml.Node]start // by the nodes of the tree
}

// look is how a document is written.
type look struct {
	step   int  // from a key to the keys below it
	wide   bool // lists are indented below their key
	isJSON bool
	unit   string            // of indented JSON, "" if it is on one line
	spaced bool              // JSON on one line has spaces
	known  map[string]string // JSON by the string, as the document writes it
}

// look returns how most of a document is written.
func (t *tree) look(starts []start) look {
	l := look{isJSON: t.isJSON}
	first := t.line(starts[0].line)
	if content := strings.TrimLeft(first, " \t"); strings.HasPrefix(content, `"`) {
		l.unit = strings.TrimSuffix(first, content)
	}
	if t.isJSON {
		l.known = make(map[string]string)
		l.spaced = strings.Contains(jsonText.ReplaceAllString(t.src, `""`), `": `)
		for _, text := range jsonText.FindAllString(t.src, -1) {
			l.known[jsonValue(text)] = text
		}
	}
	var lists, wide int
	for i, s := range starts {
		if i == 0 || s.around != i-1 || starts[i-1].item || s.line == starts[i-1].line {
			continue // It is not the first one below a key.
		}
		switch by := s.column - starts[i-1].column; {
		case s.item && by > 0:
			lists, wide = lists+1, wide+1
		case s.item:
			lists++
		case l.step == 0:
			l.step = by
		}
	}
	l.step, l.wide = max(l.step, 2), 2*wide > lists
	return l
}

// print prints a tree and finds its nodes in the print. It reports false if that is not a document of the same form.
func (l look) print(tree *yaml.Node) (printed, bool) {
	var b bytes.Buffer
	if l.isJSON {
		l.json(&b, tree, "\n")
		b.WriteByte('\n')
	} else {
		e := yaml.NewEncoder(&b)
		e.SetIndent(l.step)
		if l.wide {
			e.DefaultSeqIndent()
		}
		if e.Encode(tree) != nil || e.Close() != nil {
			return printed{}, false
		}
	}
	text := newText(b.String())
	readable := text.src
	if l.isJSON {
		readable, _ = readJSON(readable)
	}
	root, err := parseNode(readable)
	if err != nil || !sameForm(root, tree) {
		return printed{}, false
	}
	places := text.places(root, tree)
	p := printed{strings.Split(strings.TrimSuffix(text.src, "\n"), "\n"), make(map[*yaml.Node]start, len(places))}
	for _, s := range places {
		p.at[s.node] = s
	}
	return p, true
}

// json writes a node as JSON. The line break is that with the indentation of the node.
func (l look) json(b *bytes.Buffer, n *yaml.Node, lineBreak string) {
	if n.Kind == yaml.ScalarNode {
		text := n.Value
		if n.ShortTag() == "!!str" {
			if text = l.known[n.Value]; text == "" {
				text = jsonString(n.Value)
			}
		}
		b.WriteString(text)
		return
	}
	brackets, colon, comma := "[]", ":", ","
	if n.Kind == yaml.MappingNode {
		brackets = "{}"
	}
	inner := lineBreak + l.unit
	switch {
	case l.unit != "":
		colon = ": "
	case l.spaced:
		colon, comma, inner, lineBreak = ": ", ", ", "", ""
	default:
		inner, lineBreak = "", ""
	}
	b.WriteByte(brackets[0])
	for i, child := range n.Content {
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 1:
			b.WriteString(colon)
		case i > 0:
			b.WriteString(comma + inner)
		default:
			b.WriteString(inner)
		}
		l.json(b, child, inner)
	}
	if len(n.Content) > 0 {
		b.WriteString(lineBreak)
	}
	b.WriteByte(brackets[1])
}

// jsonString returns a JSON string that YAML reads as the same.
func jsonString(s string) string {
	var text, b strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) //nolint:errchkjson // a string can be encoded
	for _, r := range strings.TrimSuffix(text.String(), "\n") {
		if isControl(r) || r == 0x85 || r == 0xFEFF {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// sameForm reports whether two trees have nodes at the same places.
func sameForm(a, b *yaml.Node) bool {
	return a != nil && a.Kind == b.Kind && slices.EqualFunc(a.Content, b.Content, sameForm)
}

// uncomment removes comments, so that all of them are the user's in a merge.
func uncomment(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	for _, child := range n.Content {
		uncomment(child)
	}
}
