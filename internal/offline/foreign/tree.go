package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
	kubeyaml "sigs.k8s.io/yaml"
)

// maxNodes is how many values an input may have, those of aliases counted where they are used.
const maxNodes = 200_000

// node is a value of YAML or JSON. Scalars keep the text that is written: a password is no number, whatever it looks
// like.
type node struct {
	fields []field
	items  []*node
	// text is the text of a scalar, "" for null.
	text string
	kind yaml.Kind
}

type field struct {
	key   string
	value *node
}

// get returns the value at a path of keys, or nil. It is nil for a nil node.
func (n *node) get(keys ...string) *node {
	for _, key := range keys {
		if n == nil {
			return nil
		}
		var found *node
		for _, f := range n.fields {
			if f.key == key {
				found = f.value
			}
		}
		n = found
	}
	return n
}

// scalar returns the text of a scalar, "" for everything else.
func (n *node) scalar() string {
	if n == nil {
		return ""
	}
	return n.text
}

func (n *node) isMapping() bool { return n != nil && n.kind == yaml.MappingNode }

// parse reads the documents of a stream of YAML or JSON. Its errors quote nothing of the text, which holds credentials.
func parse(text []byte) ([]*node, error) {
	documents, err := decode(text)
	if err == nil {
		return documents, nil
	}
	if !json.Valid(text) { // the parser of YAML does not take all white space of JSON
		return nil, err
	}
	if text, err = kubeyaml.JSONToYAML(text); err != nil {
		return nil, errors.New("the JSON cannot be read")
	}
	return decode(text)
}

func decode(text []byte) ([]*node, error) {
	var documents []*node
	b := builder{left: maxNodes}
	// The parser wants a document that follows the end of another to begin with three dashes.
	decoder := yaml.NewDecoder(bytes.NewReader(documentEnd.ReplaceAll(text, []byte("---"))))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, errors.New("the text is neither YAML nor JSON" + line(err))
		}
		n, err := b.build(&document)
		if err != nil {
			return nil, err
		}
		documents = append(documents, n)
	}
}

// line returns the line that an error of the parser names, without the rest, which may quote the text.
func line(err error) string {
	_, rest, found := strings.Cut(err.Error(), "line ")
	number, _, ends := strings.Cut(rest, ":")
	if !found || !ends || strings.Trim(number, "0123456789") != "" {
		return ""
	}
	return " at line " + number
}

// documentEnd is the line that ends a document.
var documentEnd = regexp.MustCompile(`(?m)^\.\.\.[ \t\r]*$`)

type builder struct{ left int }

func (b *builder) build(n *yaml.Node) (*node, error) {
	if b.left--; b.left < 0 {
		return nil, fmt.Errorf("more than %d values", maxNodes)
	}
	out := &node{kind: n.Kind}
	switch n.Kind { //nolint:exhaustive // all there are, and zero for no node
	case yaml.AliasNode:
		return b.build(n.Alias)
	case yaml.DocumentNode:
		if len(n.Content) > 0 {
			return b.build(n.Content[0])
		}
	case yaml.ScalarNode:
		if n.Tag != "!!null" {
			out.text = n.Value
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			value, err := b.build(item)
			if err != nil {
				return nil, err
			}
			out.items = append(out.items, value)
		}
	case yaml.MappingNode:
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if seen[key.Value] {
				return nil, fmt.Errorf("the key at line %d occurs twice in its mapping", key.Line)
			}
			seen[key.Value] = true
			value, err := b.build(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out.fields = append(out.fields, field{key.Value, value})
		}
	}
	return out, nil
}
