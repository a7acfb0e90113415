package manifest

import (
	"bytes"
	"encoding/json"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// flowInsert writes an entry into a flow collection that has entries, before the one that begins at f.at. The stride is
// the number of nodes of an entry: 1 in a sequence, 2 in a mapping, where the entry has a key.
func (t *tree) flowInsert(f frame, stride int, key string, value any) (string, bool) {
	content := f.node.Content
	neighbor := content[min(f.at, len(content)-stride)]
	at, ok := t.offset(neighbor.Line, neighbor.Column)
	if !ok {
		return "", false
	}
	separator := ", "
	if t.begins(neighbor) {
		separator = "," + t.eol() + t.src[t.start(neighbor.Line):at]
	}
	entry := t.json(neighbor.Line, value)
	if stride == 2 {
		entry = quote(key) + ": " + entry
	}
	if f.at < len(content) {
		return t.src[:at] + entry + separator + t.src[at:], true
	}
	_, end, ok := t.token(content[len(content)-1])
	if !ok {
		return "", false
	}
	return t.src[:end] + separator + entry + t.src[end:], true
}

// flowRemove takes the entry that begins at f.at out of a flow collection, with the separator behind it or, if it is the
// last, the one before it.
func (t *tree) flowRemove(f frame, stride int) (string, bool) {
	content := f.node.Content
	if len(content) == stride {
		from, to, ok := t.token(f.node)
		if !ok {
			return "", false
		}
		return t.src[:from+1] + t.src[to-1:], true
	}
	if f.at+stride < len(content) {
		from, ok := t.offset(content[f.at].Line, content[f.at].Column)
		next := content[f.at+stride]
		to, nextOK := t.offset(next.Line, next.Column)
		if !ok || !nextOK {
			return "", false
		}
		return t.src[:from] + t.src[to:], true
	}
	_, from, ok := t.token(content[f.at-1])
	_, to, lastOK := t.token(content[f.at+stride-1])
	if !ok || !lastOK {
		return "", false
	}
	return t.src[:from] + t.src[to:], true
}

// flowReplace exchanges a value in a flow collection for another one.
func (t *tree) flowReplace(n *yaml.Node, value any) (string, bool) {
	from, to, ok := t.token(n)
	if !ok {
		return "", false
	}
	return t.src[:from] + t.json(n.Line, value) + t.src[to:], true
}

// json returns a value in flow style, over several lines if the document is JSON that is written that way.
func (t *tree) json(line int, value any) string {
	compact := inline(value)
	first := t.root.Content[0]
	if t.root.Style&yaml.FlowStyle == 0 || !t.begins(first) || first.Line == t.root.Line {
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
