// Package manifest reads and edits streams of Kubernetes manifests and keeps all other text as it is.
//
// A stream that is read and written comes out byte for byte. An edited document differs only at the keys and items
// that the edits change, and keeps indentation, empty lines, comments, quoting, folding, line breaks (CRLF too), a
// missing final line break and the order of keys. For that purpose a library prints the document without and with the
// edits, and the difference is merged into the text. The new text is parsed again and its value compared with the old
// value plus the edits, so that a document that is written in an unforeseen way cannot be damaged silently: that is an
// error. A value behind an alias or a merge key, or with an anchor or a tag, cannot be edited, and the error says what
// to write instead.
//
// # Comments
//
// An item is inserted behind the item or key before it, and behind the comments there that are indented deeper than its
// dash. Comments around a removed item stay; those inside it are removed with it.
//
// # Insert and remove
//
// Inserting and removing again restores the original bytes, with one exception: a list or mapping that was written as
// [], {} or null and was filled is absent after it is emptied, unless Edit.Keep retains it.
//
// # Variables
//
// Unresolved variables of clusterctl, ${NAME} or ${NAME:=default}, are strings, wherever a scalar is possible.
package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Stream is a sequence of documents, read from one input.
type Stream struct {
	documents []*Document
}

// Document is one document of a stream. It may hold no object (only comments), one, or, as a list, several.
type Document struct {
	name    string
	index   int
	line    int // of the first line of its chunk
	bom     bool
	read    *tree // as it was read
	tree    *tree
	objects []*Object
	defects []Defect
}

// Defect is an error in a document that can still be read: it is written unchanged.
type Defect struct {
	// Objects are those that cannot be edited because of it. They have a value, in which the last of equal keys counts
	// and lines with templates are omitted. A document that is a list, or only templates, has none.
	Objects []*Object
	// Place is file, document and line, as in the errors of Parse, and Cause is what is wrong, without quoting a value.
	Place, Cause string
}

// Defects returns the defects of all documents in order: keys that occur twice in a mapping, lines with nothing but a
// template, lists.
func (s *Stream) Defects() []Defect {
	var defects []Defect
	for _, d := range s.documents {
		defects = append(defects, d.defects...)
	}
	return defects
}

// Parse reads a stream. The name is that of the file, for messages; "-" stands for standard input. Documents are
// separated by the rules of YAML, so that comments and directives before the first "---" belong to the first document,
// and numbered from 1. JSON objects need no separator between them. A document that is neither empty nor a mapping is
// an error, except for the defects of Stream.Defects. All documents in error are reported, each with its number and
// line.
func Parse(name string, data []byte) (*Stream, error) {
	s := &Stream{}
	var errs []error
	aliased := 0
	for i, c := range split(string(data)) {
		d := &Document{name: name, index: i + 1, line: c.line, bom: c.bom}
		if err := d.parse(c.src); err != nil {
			errs = append(errs, err)
			continue
		}
		if aliased += d.tree.aliased; aliased > maxAliased {
			return nil, errors.Join(append(errs, d.wrap("parsing", errAliases))...)
		}
		s.documents = append(s.documents, d)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// Join concatenates streams, with a "---" between documents of two streams unless they have their own, and with a line
// break after the last line of each. The streams are not modified.
func Join(streams ...*Stream) ([]byte, error) {
	var joined Stream
	for _, s := range streams {
		for i, d := range s.documents {
			next := *d
			if last := len(joined.documents) - 1; last >= 0 && i == 0 {
				if err := join(joined.documents[last], &next); err != nil {
					return nil, err
				}
			}
			joined.documents = append(joined.documents, &next)
		}
	}
	return joined.Bytes(), nil
}

// join prepares next to follow last.
func join(last, next *Document) error {
	eol := last.tree.eol()
	closed, err := last.tree.closed()
	if err != nil {
		return last.wrap("ending", err)
	}
	var opening string
	if last.tree.isJSON && next.tree.isJSON && !last.tree.marked && !next.tree.marked {
		last.tree, next.bom = closed, false
		return nil
	}
	for line := 1; line <= next.tree.lines() && opening == ""; line++ {
		switch content := next.tree.line(line); {
		case isBlank(content) || isComment(content):
			continue
		case strings.HasPrefix(content, "%"):
			// Directives are read only after the end of a document, which belongs to the document before.
			if closed, err = closed.with(closed.src+"..."+eol, closed.value); err != nil {
				return last.wrap("ending", err)
			}
		case !isMarker(content, "---"):
			opening = "---" + eol
		}
		break
	}
	tree, err := next.tree.with(opening+next.tree.src, next.tree.value)
	if err != nil {
		return next.wrap("appending", err)
	}
	last.tree, next.tree, next.bom = closed, tree, false
	return nil
}

// parse sets the content of a new document.
func (d *Document) parse(src string) error {
	t, err := parse(src)
	if err != nil {
		var syntax *syntaxError
		line := d.line
		if errors.As(err, &syntax) && syntax.line > 0 {
			line += syntax.line - 1
		}
		return fmt.Errorf("parsing %s: document %d, line %d: %w", d.file(), d.index, line, err)
	}
	d.read, d.tree = t, t
	items, err := d.items()
	if err != nil {
		return err
	}
	if items != nil {
		d.objects = items
	} else if t.value != nil {
		d.objects = []*Object{{document: d, item: -1, line: d.line + t.root().Line - 1}}
	}
	d.findDefects()
	t.forget()
	return nil
}

// findDefects finds the objects that the defect of the tree concerns. In a list, a key that occurs twice in an item
// concerns only that.
func (d *Document) findDefects() {
	defect := d.tree.defect
	if defect == nil {
		return
	}
	var within bool // items of a list
	if d.tree.value["items"] != nil && d.objects[0].item >= 0 {
		for i, item := range lookup(d.tree.root(), "items").Content {
			if twice, _ := checkKeys(item); twice != nil {
				d.addDefect(twice, d.objects[i])
				within = within || *twice == *defect
			}
		}
	}
	if !within {
		d.addDefect(defect, d.objects...)
	}
}

// addDefect notes a defect of objects.
func (d *Document) addDefect(defect *syntaxError, objects ...*Object) {
	for _, o := range objects {
		o.defect = defect
	}
	place := fmt.Sprintf("%s: document %d, line %d", d.file(), d.index, d.line+defect.line-1)
	d.defects = append(d.defects, Defect{Objects: objects, Place: place, Cause: defect.cause})
}

// items returns the objects of a list, nil if the document is not a list. As in kubectl, the kind of a list ends with
// "List" and it has items.
func (d *Document) items() ([]*Object, error) {
	kind, _ := d.tree.value["kind"].(string)
	values, ok := d.tree.value["items"].([]any)
	if !ok || !strings.HasSuffix(kind, "List") {
		return nil, nil
	}
	node := lookup(d.tree.root(), "items")
	objects := make([]*Object, 0, len(values))
	for i, value := range values {
		line := d.line + d.tree.root().Line - 1
		if node != nil && len(node.Content) == len(values) {
			line = d.line + node.Content[i].Line - 1
		}
		if _, ok := value.(map[string]any); !ok {
			return nil, fmt.Errorf("parsing %s: document %d, line %d: item %d of the list is not a mapping", d.file(),
				d.index, line, i+1)
		}
		objects = append(objects, &Object{document: d, item: i, line: line})
	}
	return objects, nil
}

// file returns the name for messages.
func (d *Document) file() string {
	if d.name == "-" {
		return "standard input"
	}
	return d.name
}

// wrap adds the place of the document to an error.
func (d *Document) wrap(operation string, err error) error {
	return fmt.Errorf("%s %s: document %d: %w", operation, d.file(), d.index, err)
}

// Text returns the document as it will be written, with its "---" line if it has one.
func (d *Document) Text() string {
	if d.bom {
		return bom + d.tree.src
	}
	return d.tree.src
}

// Objects returns the objects of all documents in order. The items of a v1 List, and of any other kind that ends with
// "List" and has items, are separate objects; the list itself is not an object.
func (s *Stream) Objects() []*Object {
	var objects []*Object
	for _, d := range s.documents {
		objects = append(objects, d.objects...)
	}
	return objects
}

// Diff returns the changes since Parse, in the unified format with the name given to Parse, "" if nothing.
// Documents, and the items of a list, are compared one by one.
func (s *Stream) Diff() []byte {
	var name string
	var parts []DiffPart
	for _, d := range s.documents {
		name = d.name
		before, after := d.read.parts(), d.tree.parts()
		if len(before) != len(after) {
			before, after = []string{d.read.src}, []string{d.tree.src}
		}
		if d.bom {
			before[0], after[0] = bom+before[0], bom+after[0]
		}
		for i := range before {
			parts = append(parts, DiffPart{Old: before[i], New: after[i]})
		}
	}
	return UnifiedDiff(name, name+" (rendered)", parts...)
}

// parts cuts a document that is a list before its items, if each begins on a new line.
func (t *tree) parts() []string {
	var parts []string
	at := 0
	if t.value["items"] == nil {
		return []string{t.src}
	}
	if list := lookup(t.root(), "items"); list != nil && list.Kind == yaml.SequenceNode && list.Style&yaml.FlowStyle == 0 {
		for i := range list.Content {
			line := t.dashLine(list, i)
			if line == 0 || t.start(line) < at {
				return []string{t.src}
			}
			parts = append(parts, t.src[at:t.start(line)])
			at = t.start(line)
		}
	}
	return append(parts, t.src[at:])
}

// IsJSON reports whether the stream has documents and all are JSON objects, without "---".
func (s *Stream) IsJSON() bool {
	other := func(d *Document) bool { return !d.tree.isJSON || d.tree.marked }
	return len(s.documents) > 0 && !slices.ContainsFunc(s.documents, other)
}

// Bytes returns the stream with all edits.
func (s *Stream) Bytes() []byte {
	length := 0
	for _, d := range s.documents {
		length += len(bom) + len(d.tree.src)
	}
	data := make([]byte, 0, length)
	for _, d := range s.documents {
		data = append(data, d.Text()...)
	}
	return data
}
