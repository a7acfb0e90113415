package manifest

import (
	"bytes"
	"encoding/json"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// flowInsert writes entries into a flow collection that has some, before the one that begins at f.at. The stride is the
// number of nodes of an entry: 1 in a sequence, whose entries have no names, and 2 in a mapping.
func (t *tree) flowInsert(f frame, stride int, entries Map) (splice, bool) {
	content := f.node.Content
	neighbor := content[min(f.at, len(content)-stride)]
	at, ok := t.offset(neighbor.Line, neighbor.Column)
	if !ok {
		return splice{}, false
	}
	separator := ", "
	if t.begins(neighbor) {
		separator = "," + t.eol() + t.src[t.start(neighbor.Line):at]
	}
	last := f.at >= len(content)
	if last {
		_, at, ok = t.token(content[len(content)-1])
	}
	var b strings.Builder
	for _, entry := range entries {
		text := t.json(neighbor.Line, entry.Value)
		if stride == 2 {
			text = quote(entry.Name) + ": " + text
		}
		if last {
			b.WriteString(separator + text)
		} else {
			b.WriteString(text + separator)
		}
	}
	return splice{from: at, to: at, text: b.String()}, ok
}

// flowRemove removes entries from a flow collection, each given by the index of its first node, in order: with the
// separator after it or, at the end, the one before it.
func (t *tree) flowRemove(n *yaml.Node, stride int, entries []int) (changes []splice, ok bool) {
	for len(entries) > 0 {
		first, next := entries[0], entries[0]+stride
		for entries = entries[1:]; len(entries) > 0 && entries[0] == next; entries = entries[1:] {
			next += stride
		}
		var c splice
		switch {
		case next < len(n.Content):
			var nextOK bool
			c.from, ok = t.offset(n.Content[first].Line, n.Content[first].Column)
			c.to, nextOK = t.offset(n.Content[next].Line, n.Content[next].Column)
			ok = ok && nextOK
		case first > 0:
			var lastOK bool
			_, c.from, ok = t.token(n.Content[first-1])
			_, c.to, lastOK = t.token(n.Content[next-1])
			ok = ok && lastOK
		default:
			c.from, c.to, ok = t.token(n)
			c.from, c.to = c.from+1, c.to-1
		}
		if !ok {
			return nil, false
		}
		changes = append(changes, c)
	}
	return changes, true
}

// flowReplace replaces a value in a flow collection.
func (t *tree) flowReplace(n *yaml.Node, value any) (splice, bool) {
	from, to, ok := t.token(n)
	if !ok {
		return splice{}, false
	}
	return splice{from: from, to: to, text: t.json(n.Line, value)}, true
}

// json returns a value in flow style, over several lines if the document is JSON that is written that way.
func (t *tree) json(line int, value any) string {
	compact := inline(value)
	first := t.root().Content[0]
	if t.root().Style&yaml.FlowStyle == 0 || !t.begins(first) || first.Line == t.root().Line {
		return compact
	}
	unit := t.src[t.start(first.Line):]
	unit = unit[:len(unit)-len(strings.TrimLeft(unit, " \t"))]
	prefix := t.line(line)
	prefix = prefix[:len(prefix)-len(strings.TrimLeft(prefix, " \t"))]
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(compact), prefix, unit); err != nil {
		return compact
	}
	return strings.ReplaceAll(b.String(), "\n", t.eol())
}
