package manifest

import (
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// changeNodes makes changes, which applyTo has accepted, in the nodes of a document. It notes the keys and items that
// get another value, and reports false at an alias.
func changeNodes(document *yaml.Node, changes []Change, replaced map[*yaml.Node]bool) bool {
	for _, c := range changes {
		root, flow := document, false
		if c.Object.item >= 0 {
			list := value(document, "items")
			if list == nil || list.Kind != yaml.SequenceNode {
				return false
			}
			root, flow = list.Content[c.Object.item], inFlow(document) || inFlow(list)
		}
		for _, e := range c.Edits {
			if !e.applyToNodes(root, flow, replaced) {
				return false
			}
		}
		for _, e := range c.Edits {
			e.prune(root)
		}
	}
	return true
}

// omit empties the values in a block mapping, at a depth of the object, that no edit passes: they need not be printed.
// The last one stays, because new keys come behind it.
func omit(n *yaml.Node, edits []Edit, depth int) {
	ends := func(e Edit) bool { return len(e.Path) == depth }
	if n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle != 0 || slices.ContainsFunc(edits, ends) {
		return
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := unmask(n.Content[i].Value), n.Content[i+1]
		others := func(e Edit) bool { return e.Path[depth] != key }
		switch below := slices.DeleteFunc(slices.Clone(edits), others); {
		case len(below) > 0:
			omit(value, below, depth+1)
		case i+2 < len(n.Content) && len(value.Content) > 0:
			*value = yaml.Node{Kind: yaml.ScalarNode, Value: "0"}
		}
	}
}

// applyToNodes makes the edit in the nodes of an object, which is part of a flow collection or not.
func (e Edit) applyToNodes(root *yaml.Node, flow bool, replaced map[*yaml.Node]bool) bool {
	last := len(e.Path) - 1
	parents := []*yaml.Node{root}
	for i, key := range e.Path {
		parent := parents[i]
		if parent.Kind != yaml.MappingNode {
			return false
		}
		flow = flow || inFlow(parent)
		if i == last {
			break
		}
		next := value(parent, key)
		if next == nil {
			if e.Op != Insert && e.Op != SetScalar {
				return true // There is nothing to remove.
			}
			next = &yaml.Node{Kind: yaml.MappingNode}
			set(parent, key, next, flow)
		}
		parents = append(parents, next)
	}
	parent, key := parents[last], e.Path[last]
	list := value(parent, key)
	switch e.Op {
	case SetScalar:
		scalar := newNode(e.Value, flow)
		if list == nil || list.Value != scalar.Value || list.ShortTag() != scalar.ShortTag() {
			replaced[set(parent, key, scalar, flow)] = true
		}
		return true
	case Insert:
		if list == nil {
			list = &yaml.Node{Kind: yaml.SequenceNode}
			set(parent, key, list, flow)
		}
		flow = flow || inFlow(list)
		if list.Kind != yaml.SequenceNode || e.Index > len(list.Content) { // An alias, or from a merge key.
			return false
		}
		if len(list.Content) == 0 {
			list.Style = 0
		}
		list.Content = slices.Insert(list.Content, e.Index, newNode(e.Value, flow))
		return true
	case RemoveKey:
		remove(parent, key)
		return true
	case Remove, Replace: // below
	}
	if list == nil || list.Kind != yaml.SequenceNode {
		return false
	}
	if e.Op == Remove {
		list.Content = slices.Delete(list.Content, e.Index, e.Index+1)
		return true
	}
	*list.Content[e.Index] = *newNode(e.Value, flow || inFlow(list))
	replaced[list.Content[e.Index]] = true
	return true
}

// prune removes what a removal has left empty.
func (e Edit) prune(root *yaml.Node) {
	nodes := []*yaml.Node{root}
	for i := 0; i < len(e.Path) && nodes[i] != nil; i++ {
		nodes = append(nodes, value(nodes[i], e.Path[i]))
	}
	for i := len(nodes) - 1; i > e.Keep && (e.Op == Remove || e.Op == RemoveKey); i-- {
		if n := nodes[i]; n != nil {
			if n.Kind == yaml.ScalarNode || len(n.Content) > 0 {
				return
			}
			remove(nodes[i-1], e.Path[i-1])
		}
	}
}

// remove removes a key of a mapping.
func remove(n *yaml.Node, key string) {
	if at := keyIndex(n, key); at >= 0 {
		n.Content = slices.Delete(n.Content, at, at+2)
	}
}

// keyIndex returns the index of a key in the content of a mapping, -1 if it is absent.
func keyIndex(n *yaml.Node, key string) int {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Kind == yaml.ScalarNode && unmask(n.Content[i].Value) == key {
			return i
		}
	}
	return -1
}

// value returns the value of a key of a mapping, nil if it is absent or null.
func value(n *yaml.Node, key string) *yaml.Node {
	at := keyIndex(n, key)
	if at < 0 || n.Content[at+1].ShortTag() == "!!null" {
		return nil
	}
	return n.Content[at+1]
}

// set gives a key of a mapping a value, and returns the key.
func set(n *yaml.Node, key string, value *yaml.Node, flow bool) *yaml.Node {
	at := keyIndex(n, key)
	if at < 0 {
		if at = len(n.Content); at == 0 {
			n.Style = 0
		}
		n.Content = append(n.Content, newKey(key, flow), nil)
	}
	n.Content[at+1] = value
	return n.Content[at]
}

// inFlow reports whether what is added to a collection is in flow style: an empty one changes its style.
func inFlow(n *yaml.Node) bool { return n.Style&yaml.FlowStyle != 0 && len(n.Content) > 0 }

// newKey returns the node of a new key, which has one line.
func newKey(name string, flow bool) *yaml.Node {
	return newNode(name, flow || strings.Contains(name, "\n"))
}

// quoted is the key that merges, and the strings that YAML 1.1 reads as a boolean or a number and the printer does not
// quote by itself.
var quoted = regexp.MustCompile(`^(?:<<|(?i:y|n|yes|no|on|off)|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$`)

// newNode returns the nodes of a new value. Strings in flow collections are written as in JSON.
func newNode(value any, flow bool) *yaml.Node {
	n := &yaml.Node{}
	switch v := value.(type) {
	case Map:
		n.Kind = yaml.MappingNode
		for _, f := range v {
			n.Content = append(n.Content, newKey(f.Name, flow), newNode(f.Value, flow))
		}
	case []any:
		n.Kind = yaml.SequenceNode
		for _, item := range v {
			n.Content = append(n.Content, newNode(item, flow))
		}
	case string:
		n.SetString(v)
		// A block scalar would need an indicator of its indentation, or be joined by an empty line behind it.
		block := strings.TrimLeft(v, " \t\n") == v && !strings.HasSuffix(v, "\n\n") &&
			!strings.ContainsAny(v, "\r\u0085\u2028\u2029"+bom)
		if flow || quoted.MatchString(v) || !block && strings.Contains(v, "\n") {
			n.Style = yaml.DoubleQuotedStyle
		}
	default:
		_ = n.Encode(v)
	}
	return n
}
