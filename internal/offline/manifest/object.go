package manifest

import (
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Object is one Kubernetes object of a stream: a document, or an item of a document that is a list.
type Object struct {
	document *Document
	item     int // in a list; -1 if the object is the document
	line     int
	defect   *syntaxError // with which it cannot be edited
}

// APIVersion returns the apiVersion, "" if it is absent or not a string.
func (o *Object) APIVersion() string { return o.str("apiVersion") }

// Kind returns the kind, "" if it is absent or not a string.
func (o *Object) Kind() string { return o.str("kind") }

// Namespace returns metadata.namespace, "" if it is absent or not a string.
func (o *Object) Namespace() string { return o.str("metadata", "namespace") }

// Name returns metadata.name, "" if it is absent or not a string.
func (o *Object) Name() string { return o.str("metadata", "name") }

// String returns kind, namespace and name as in messages, for example "Cluster team-a/prod".
func (o *Object) String() string {
	name := o.Name()
	if namespace := o.Namespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(o.Kind() + " " + name)
}

// Labels returns a copy of metadata.labels without the entries that are not strings, which an API server rejects.
func (o *Object) Labels() map[string]string { return o.strings("labels") }

// Annotations returns a copy of metadata.annotations without the entries that are not strings.
func (o *Object) Annotations() map[string]string { return o.strings("annotations") }

// File returns the name of the input, as in messages.
func (o *Object) File() string { return o.document.file() }

// Document returns the number of the document in its input, counted from 1.
func (o *Object) Document() int { return o.document.index }

// Line returns the line of the input at which the object begins, counted from 1. Edits do not change it.
func (o *Object) Line() int { return o.line }

// Place is where a key or an item of a list is in its input.
type Place struct {
	// Line is that of the key or item, counted from 1.
	Line int
	// Block is the line at which the text of its value begins if that is a literal block ("|"), and Text is that value.
	Block int
	Text  string
}

// Find returns the place at a path of names of keys and, counted from 0, indexes of items. It follows no aliases. Edits
// move places.
func (o *Object) Find(path []string) (Place, bool) {
	var p Place
	n := o.document.tree.root()
	if list := lookup(n, "items"); o.item >= 0 && list != nil {
		n = list.Content[o.item]
	}
	for _, step := range path {
		switch n.Kind {
		case yaml.MappingNode:
			at := keyIndex(n, step)
			if at < 0 {
				return p, false
			}
			p.Line, n = n.Content[at].Line, n.Content[at+1]
		case yaml.SequenceNode:
			at, err := strconv.Atoi(step)
			if err != nil || at < 0 || at >= len(n.Content) {
				return p, false
			}
			n = n.Content[at]
			p.Line = n.Line
		default:
			return p, false
		}
	}
	p.Line += o.document.line - 1
	if n.Style&yaml.LiteralStyle != 0 {
		p.Block, p.Text = n.Line+o.document.line, n.Value
	}
	return p, p.Line >= o.document.line
}

// Value returns a copy of the object as kubectl would decode it, with JSON-compatible types and integers as int64.
func (o *Object) Value() map[string]any {
	value, _ := clone(o.value(o.document.tree.value)).(map[string]any)
	return value
}

// value finds the object in the value of its document.
func (o *Object) value(document map[string]any) map[string]any {
	if o.item < 0 {
		return document
	}
	items, _ := document["items"].([]any)
	value, _ := items[o.item].(map[string]any)
	return value
}

// str returns the string at a path, "" if there is none.
func (o *Object) str(path ...string) string {
	var value any = o.value(o.document.tree.value)
	for _, key := range path {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	s, _ := value.(string)
	return s
}

// strings returns the string entries of a mapping under metadata.
func (o *Object) strings(field string) map[string]string {
	metadata, _ := o.value(o.document.tree.value)["metadata"].(map[string]any)
	entries, _ := metadata[field].(map[string]any)
	result := make(map[string]string, len(entries))
	for key, value := range entries {
		if s, ok := value.(string); ok {
			result[key] = s
		}
	}
	return result
}

// Apply makes the edits of one object, see Stream.Apply.
func (o *Object) Apply(edits []Edit) error {
	t, err := o.document.apply([]Change{{o, edits}})
	if err != nil {
		return err
	}
	o.document.tree = t
	return nil
}

// lookup returns the value of a key, including one from a merge key; nil if it is absent.
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
