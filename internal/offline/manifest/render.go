package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// renderer writes new values in block style, in the style of the document around them.
type renderer struct {
	step   int  // from a key to the keys below it
	seq    int  // from a key to the dashes below it: 0 in the compact style of kubectl
	dash   int  // from a dash to its item
	quoted bool // write strings that end in empty lines, which an empty line after them would join, in double quotes
}

// renderer copies the style of the nearest block collections: the list that is edited, its neighbors, and so on
// outward. Without an example it uses kubectl's style.
func (t *tree) renderer(s site) renderer {
	r := renderer{step: 2, dash: 2}
	nodes := []*yaml.Node{s.value}
	for i, f := range slices.Backward(s.frames) {
		if i == len(s.frames)-1 && f.node.Kind == yaml.MappingNode {
			// The list itself has precedence over its neighbors.
			nodes = append(nodes, &yaml.Node{Kind: yaml.MappingNode, Content: f.node.Content[f.at : f.at+2]})
		}
		nodes = append(nodes, f.node)
	}
	var haveStep, haveSeq bool
	for _, n := range nodes {
		if offset, ok := childOffset(n, yaml.MappingNode); ok && !haveStep && offset > 0 {
			r.step, haveStep = offset, true
		}
		if offset, ok := childOffset(n, yaml.SequenceNode); ok && !haveSeq {
			r.seq, haveSeq = offset, true
		}
	}
	if list := s.value; list.Kind == yaml.SequenceNode && list.Style&yaml.FlowStyle == 0 && len(list.Content) > 0 {
		first := list.Content[0]
		if offset := first.Column - list.Column; first.Line == list.Line && offset >= 2 && offset <= 8 {
			r.dash = offset
		}
	}
	return r
}

// childOffset returns how far the first block mapping or block sequence that is the value of a key is indented.
func childOffset(n *yaml.Node, kind yaml.Kind) (int, bool) {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && child.Kind == kind && child.Style&yaml.FlowStyle == 0 &&
			child.Anchor == "" && len(child.Content) > 0 && child.Line > n.Content[i-1].Line {
			if offset := child.Column - n.Content[i-1].Column; offset >= 0 && offset <= 8 {
				return offset, true
			}
		}
		if offset, ok := childOffset(child, kind); ok {
			return offset, true
		}
	}
	return 0, false
}

// pad returns n spaces.
func pad(n int) string { return strings.Repeat(" ", n) }

// entry returns the lines of a value whose key or dash is at a column; the first begins with head.
func (r renderer) entry(head string, column int, value any) []string {
	switch v := value.(type) {
	case Map:
		if len(v) > 0 {
			return append([]string{head}, r.below(column, v)...)
		}
	case []any:
		if len(v) > 0 {
			return append([]string{head}, r.below(column, v)...)
		}
	case string:
		if isLiteral(v) && (!r.quoted || !strings.HasSuffix(v, "\n\n")) {
			return r.literal(head, column, v)
		}
	}
	return []string{head + " " + scalar(value)}
}

// below returns the lines of a mapping or list that belongs to a key at a column.
func (r renderer) below(column int, value any) []string {
	var lines []string
	switch v := value.(type) {
	case Map:
		for _, f := range v {
			lines = append(lines, r.entry(pad(column+r.step)+scalar(f.Name)+":", column+r.step, f.Value)...)
		}
	case []any:
		for _, item := range v {
			lines = append(lines, r.item(column+r.seq, item)...)
		}
	}
	return lines
}

// item returns the lines of a list item whose dash is at a column.
func (r renderer) item(column int, value any) []string {
	var lines []string
	inner := column + r.dash
	switch v := value.(type) {
	case Map:
		for _, f := range v {
			lines = append(lines, r.entry(pad(inner)+scalar(f.Name)+":", inner, f.Value)...)
		}
	case []any:
		for _, item := range v {
			lines = append(lines, r.item(inner, item)...)
		}
	}
	if len(lines) == 0 {
		return r.entry(pad(column)+"-"+pad(r.dash-2), column, value)
	}
	lines[0] = pad(column) + "-" + pad(r.dash-1) + lines[0][inner:]
	return lines
}

// isLiteral reports whether a string is written as a literal block scalar: it has several lines, at least one of them
// not blank, and no character that such a scalar would change.
func isLiteral(s string) bool {
	return strings.Contains(s, "\n") && strings.Trim(s, " \t\n") != "" &&
		!strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && needsEscape(r) })
}

// literal returns the lines of a literal block scalar (YAML 1.2.2, section 8.1).
func (r renderer) literal(head string, column int, s string) []string {
	header := head + " |"
	if strings.HasPrefix(s, " ") || strings.HasPrefix(s, "\t") || strings.HasPrefix(s, "\n") {
		header += strconv.Itoa(r.step) // The first line does not show the indentation.
	}
	switch {
	case !strings.HasSuffix(s, "\n"):
		header += "-"
	case strings.HasSuffix(s, "\n\n"):
		header += "+"
	}
	lines := []string{header}
	for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
		if line != "" {
			line = pad(column+r.step) + line
		}
		lines = append(lines, line)
	}
	return lines
}

// scalar returns a scalar on one line. A string is plain if possible, and quoted if YAML 1.1 or 1.2 would read
// something else; empty collections have their flow form.
func scalar(value any) string {
	s, ok := value.(string)
	if !ok {
		return inline(value)
	}
	switch {
	case isWord(s):
		return s
	case isNumber(s):
		return quote(s)
	}
	if strings.ContainsFunc(s, needsEscape) {
		return quote(s)
	}
	data, err := yaml.Marshal(s)
	text := strings.TrimSuffix(string(data), "\n")
	if err != nil || strings.Contains(text, "\n") {
		return quote(s)
	}
	return text
}

// isWord reports whether a string is obviously a string for every parser: a path or name that begins with a letter or
// slash and is not the name of another value in any version of YAML.
func isWord(s string) bool {
	switch strings.ToLower(s) {
	case "", "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return false
	}
	return !strings.ContainsAny(s[:1], "0123456789-._:") && !strings.HasSuffix(s, ":") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/:") == ""
}

// isNumber reports whether a string has only digits.
func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// inline returns a value in flow style. The result is JSON as well.
func inline(value any) string {
	switch v := value.(type) {
	case string:
		return quote(v)
	case Map:
		fields := make([]string, len(v))
		for i, f := range v {
			fields[i] = quote(f.Name) + ": " + inline(f.Value)
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = inline(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	default: // bool, int, int64
		return fmt.Sprint(v)
	}
}

// needsEscape reports whether a character is only possible in double quotes: it is a line break for a YAML 1.1 parser,
// a control character or a byte order mark.
func needsEscape(r rune) bool {
	return isControl(r) || r == '\n' || r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xFEFF
}

// quote returns a string in double quotes, with escapes that JSON and YAML share.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case needsEscape(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
