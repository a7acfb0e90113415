package manifest

import (
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// The parser returns where a node begins. This file finds where it ends. A wrong answer for a document that is written
// in an unforeseen way does no harm, because every edited text is verified.

// bound returns the first line that cannot belong to what the last frame leads to: that of the next key or item in the
// document, or the line after its content.
func (t *tree) bound(frames []frame) int {
	for _, f := range slices.Backward(frames) {
		switch {
		case f.node.Kind == yaml.MappingNode && f.at+2 < len(f.node.Content):
			return f.node.Content[f.at+2].Line
		case f.node.Kind == yaml.SequenceNode && f.at+1 < len(f.node.Content):
			if line := t.dashLine(f.node, f.at+1); line > 0 {
				return line
			}
			return f.node.Content[f.at+1].Line
		}
	}
	for line := t.lines(); line > 0; line-- {
		content := t.line(line)
		if isMarker(content, "...") {
			return line
		}
		if !isBlank(content) && !isComment(content) {
			break
		}
	}
	return t.lines() + 1
}

// dashLine returns the line of the dash of an item, 0 if the dash is not the first thing on its line.
func (t *tree) dashLine(list *yaml.Node, item int) int {
	column := list.Column - 1
	for line := list.Content[item].Line; line >= list.Line; line-- {
		content := t.line(line)
		if indent(content) == column && isMarker(content[column:], "-") {
			return line
		}
	}
	return 0
}

// behindComments skips the comments directly at a line that are indented deeper than a column: they belong to what is
// above.
func (t *tree) behindComments(line, bound, column int) int {
	for line < bound && isComment(t.line(line)) && indent(t.line(line)) > column {
		line++
	}
	return line
}

// lastLine returns the last line of a node, without the empty lines and comments that follow it. The column is that of
// the key or dash that the node belongs to, counted from 0.
func (t *tree) lastLine(n *yaml.Node, column, bound int) int {
	for n.Style&yaml.FlowStyle == 0 && len(n.Content) > 0 {
		column = n.Column - 1
		if n.Kind == yaml.MappingNode {
			column = n.Content[len(n.Content)-2].Column - 1
		}
		n = n.Content[len(n.Content)-1]
	}
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return t.lastBlockLine(n, column, bound)
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		if _, to, ok := t.token(n); ok {
			line := n.Line
			for line < t.lines() && t.end(line) < to {
				line++
			}
			return line
		}
	}
	line := bound - 1
	for line > n.Line && (isBlank(t.line(line)) || isComment(t.line(line))) {
		line--
	}
	return line
}

// lastBlockLine returns the last line of a block scalar. Empty lines at its end belong to it if it keeps them ("|+").
func (t *tree) lastBlockLine(n *yaml.Node, column, bound int) int {
	var keep bool
	margin := 0 // Found at the first line with content.
	header := t.line(n.Line)
	if at, ok := t.offset(n.Line, n.Column); ok {
		header = header[at-t.start(n.Line):]
	}
	if at := strings.IndexAny(header, "|>"); at >= 0 {
	indicators:
		for _, c := range strings.TrimLeft(header[at:], "|>") {
			switch {
			case c >= '1' && c <= '9':
				margin = column + int(c-'0')
			case c == '+':
				keep = true
			case c != '-':
				break indicators
			}
		}
	}
	last := n.Line
	for line := n.Line + 1; line < bound; line++ {
		content := t.line(line)
		depth := indent(content)
		if depth == len(content) && (margin == 0 || depth <= margin) {
			if keep {
				last = line
			}
			continue
		}
		if margin == 0 {
			margin = max(depth, column+1)
		}
		if depth < margin {
			break
		}
		last = line
	}
	return last
}

// token returns the range of a scalar that is written on one line or in quotes, or of a flow collection.
func (t *tree) token(n *yaml.Node) (from, to int, ok bool) {
	from, ok = t.offset(n.Line, n.Column)
	if !ok || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return 0, 0, false
	}
	if n.Style&(yaml.FlowStyle|yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		to, ok = flowEnd(t.src, from)
		return from, to, ok
	}
	plain := n.Value
	if t.masked {
		plain = unmask(plain)
	}
	return from, from + len(plain), n.Kind == yaml.ScalarNode && n.Style == 0 && strings.HasPrefix(t.src[from:], plain)
}

// flowEnd returns the end of the quoted scalar, flow collection or plain scalar that begins at an offset.
func flowEnd(src string, at int) (int, bool) {
	if at >= len(src) {
		return 0, false
	}
	switch src[at] {
	case '"':
		for i := at + 1; i < len(src); i++ {
			switch src[i] {
			case '\\':
				i++
			case '"':
				return i + 1, true
			}
		}
		return 0, false
	case '\'':
		for i := at + 1; i < len(src); i++ {
			if src[i] != '\'' {
				continue
			}
			if !strings.HasPrefix(src[i+1:], "'") {
				return i + 1, true
			}
			i++
		}
		return 0, false
	case '[', '{':
		return collectionEnd(src, at+1)
	}
	end := at
	for i := at; i < len(src) && !strings.ContainsRune(",[]{}\r\n", rune(src[i])); i++ {
		if src[i] == ':' && strings.ContainsAny(src[i+1:min(i+2, len(src))], " \t\r\n,[]{}") || src[i] == '#' && end < i {
			break
		}
		if src[i] != ' ' && src[i] != '\t' {
			end = i + 1
		}
	}
	return end, end > at
}

// collectionEnd returns the end of a flow collection, given the offset after its opening bracket.
func collectionEnd(src string, at int) (int, bool) {
	for at < len(src) {
		switch src[at] {
		case ']', '}':
			return at + 1, true
		case ' ', '\t', '\r', '\n', ',', ':', '?':
			at++
		case '#':
			content, _ := lineBreak(src[at:])
			at += content
		default:
			end, ok := flowEnd(src, at)
			if !ok {
				return 0, false
			}
			at = end
		}
	}
	return 0, false
}
