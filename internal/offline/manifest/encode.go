package manifest

import (
	"errors"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// encode makes an edit in the nodes and writes the smallest part of the document anew whose text then has the wanted
// value: an entry of the innermost mapping on the path, one further out, and at last the whole document.
func (t *tree) encode(e Edit, item, pruned int, want map[string]any) (*tree, bool) {
	root, err := t.copyRoot()
	if err != nil || root == nil || !editNode(root, e, item, pruned) {
		return nil, false
	}
	s, _ := t.locate(e.Path, item)
	r := t.renderer(s)
	deepest := len(s.frames)
	if pruned > 0 {
		deepest = min(deepest, s.base+pruned-1)
	}
	for i := deepest - 1; i >= 0; i-- {
		inner := site{frames: s.frames[:i+1]}
		f := s.frames[i]
		if f.node.Kind != yaml.MappingNode || inner.inFlow() {
			continue
		}
		edited := root
		for _, outer := range s.frames[:i] {
			if outer.node.Kind == yaml.MappingNode {
				edited = edited.Content[outer.at+1]
			} else {
				edited = edited.Content[outer.at]
			}
		}
		key := f.node.Content[f.at]
		last := t.lastLine(f.node.Content[f.at+1], key.Column-1, t.bound(inner.frames))
		entry := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: edited.Content[f.at : f.at+2]}
		if result, ok := t.reencode(entry, key, last, r, want); ok {
			return result, true
		}
	}
	last := t.lastLine(t.root(), 0, t.bound(nil))
	return t.reencode(root, t.root(), last, r, want)
}

// copyRoot returns nodes that can be changed. Their comments, which the parser does not normalize, have no carriage returns.
func (t *tree) copyRoot() (*yaml.Node, error) {
	return parseNode(strings.ReplaceAll(t.readable, "\r\n", "\n"))
}

// terminate adds a line break to a document that ends in a block scalar to which it would add, by writing it anew.
func (t *tree) terminate(eol string) (*tree, error) {
	root, err := t.copyRoot()
	if err == nil && root != nil {
		last := t.lastLine(t.root(), 0, t.bound(nil))
		if result, ok := t.reencode(root, t.root(), last, t.renderer(site{value: t.root()}), t.value); ok {
			return result.with(result.src+eol, t.value)
		}
	}
	return nil, errors.New("its last line needs a line break, which would change its value")
}

// reencode writes a node in the place of the text from another node to the end of a line. Comments that the parser has
// attached to the node but that stand around that text stay where they are.
func (t *tree) reencode(n, from *yaml.Node, last int, r renderer, want map[string]any) (*tree, bool) {
	at, ok := t.offset(from.Line, from.Column)
	if !ok || last < from.Line {
		return nil, false
	}
	n = copyNode(n)
	for first := n; ; first = first.Content[0] {
		first.HeadComment = ""
		if first.Kind != yaml.MappingNode || len(first.Content) == 0 {
			break
		}
	}
	for end := n; ; end = end.Content[len(end.Content)-1] {
		end.FootComment = ""
		if len(end.Content) == 0 {
			break
		}
		if end.Kind == yaml.MappingNode {
			end.Content[len(end.Content)-2].FootComment = ""
		}
	}
	style := yaml.CompactSequenceStyle
	if r.seq > 0 {
		style = yaml.WideSequenceStyle
	}
	data, err := yaml.MarshalWithOptions(n, &yaml.EncoderOptions{SeqIndent: style})
	if err != nil {
		return nil, false
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for i := 1; i < len(lines); i++ {
		if lines[i] != "" {
			lines[i] = pad(from.Column-1) + lines[i]
		}
	}
	encoded := strings.Join(lines, t.eol())
	if t.masked {
		encoded = unmask(encoded)
	}
	result, err := t.with(t.src[:at]+encoded+t.src[t.end(last):], want)
	return result, err == nil
}

// editNode makes an edit in the nodes of a document. Aliases and merged keys on the path become copies.
func editNode(root *yaml.Node, e Edit, item, pruned int) bool {
	object := root
	if item >= 0 {
		list := child(root, "items", 0)
		if list == nil || item >= len(list.Content) {
			return false
		}
		list.Content[item] = detach(list.Content[item])
		object = list.Content[item]
	}
	if pruned > 0 {
		parent := object
		for _, key := range e.Path[:pruned-1] {
			if parent = child(parent, key, 0); parent == nil {
				return false
			}
		}
		at := keyIndex(parent, e.Path[pruned-1])
		if at < 0 {
			return false
		}
		parent.Content = slices.Delete(parent.Content, at, at+2)
		return true
	}
	parent := object
	for _, key := range e.Path[:len(e.Path)-1] {
		if parent = child(parent, key, yaml.MappingNode); parent == nil {
			return false
		}
	}
	key := e.Path[len(e.Path)-1]
	if e.Op == SetScalar {
		n := child(parent, key, yaml.ScalarNode)
		if n == nil {
			return false
		}
		*n = *newNode(e.Value)
		return true
	}
	list := child(parent, key, yaml.SequenceNode)
	if list == nil || e.Index > len(list.Content) {
		return false
	}
	switch e.Op {
	case Insert:
		list.Content = slices.Insert(list.Content, e.Index, newNode(e.Value))
	case Remove:
		list.Content = slices.Delete(list.Content, e.Index, e.Index+1)
	default:
		list.Content[e.Index] = newNode(e.Value)
	}
	return true
}

// child returns the value of a key as a node that is the mapping's own. If the value is absent, null or empty, the result
// is a new node of the given kind; if that is 0, it is nil for an absent key.
func child(n *yaml.Node, key string, kind yaml.Kind) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	at := keyIndex(n, key)
	if at < 0 {
		value := lookup(n, key)
		if value == nil {
			if kind == 0 {
				return nil
			}
			value = &yaml.Node{Kind: kind}
		}
		at = len(n.Content)
		n.Content = append(n.Content, newNode(key), detach(value))
	}
	n.Content[at+1] = detach(n.Content[at+1])
	value := n.Content[at+1]
	if kind != 0 && value.Kind != kind && value.ShortTag() == "!!null" {
		*value = yaml.Node{Kind: kind, LineComment: value.LineComment}
	}
	if len(value.Content) == 0 {
		value.Style &^= yaml.FlowStyle
	}
	return value
}

// detach returns a copy of the node that an alias stands for, without its anchor, and any other node itself.
func detach(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode {
		return n
	}
	n = copyNode(n.Alias)
	n.Anchor = ""
	return n
}

// copyNode copies a node and all nodes below it; aliases below it remain aliases.
func copyNode(n *yaml.Node) *yaml.Node {
	result := *n
	if n.Tag == "!!merge" {
		result.Tag = "" // The encoder would write it out.
	}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 &&
		(strings.Trim(n.Value[:min(1, len(n.Value))], " \t\n") == "" || strings.HasSuffix(n.Value, "\n\n")) {
		result.Style = yaml.DoubleQuotedStyle // The encoder would write a wrong indentation or chomping indicator.
	}
	result.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		result.Content[i] = copyNode(c)
	}
	return &result
}

// newNode returns the node of a checked value.
func newNode(value any) *yaml.Node {
	list, err := parseNode(strings.Join(renderer{step: 2, dash: 2}.item(0, value), "\n") + "\n")
	if err != nil || list == nil || len(list.Content) != 1 {
		return &yaml.Node{Kind: yaml.ScalarNode} // Differs from the wanted value, and so is refused.
	}
	return list.Content[0]
}

// lookup returns the value of a key, also one that a merge key provides; nil if it is absent.
func lookup(n *yaml.Node, key string) *yaml.Node {
	switch n.Kind {
	case yaml.AliasNode:
		return lookup(n.Alias, key)
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if value := lookup(c, key); value != nil {
				return value
			}
		}
	case yaml.MappingNode:
		at := keyIndex(n, key)
		if at < 0 {
			if at = keyIndex(n, "<<"); at >= 0 {
				return lookup(n.Content[at+1], key)
			}
			return nil
		}
		if value := n.Content[at+1]; value.Kind == yaml.AliasNode {
			return value.Alias
		}
		return n.Content[at+1]
	default:
	}
	return nil
}
