package manifest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Change is a sequence of edits of one object. They are made one after the other; an index refers to the list as the
// edits before have left it, as in JSON Patch (RFC 6902).
type Change struct {
	Object *Object
	Edits  []Edit
}

// Apply makes changes of objects of the stream. Either all are made or, with an error that names file, document and
// field of each that cannot, none. A document is parsed once more, however many changes it takes, unless it is
// written in a way that needs one edit after the other.
func (s *Stream) Apply(changes []Change) error {
	var errs []error
	trees := make(map[*Document]*tree)
	byDocument := make(map[*Document][]Change)
	position := make(map[*Object]int)
	for _, c := range changes {
		of := byDocument[c.Object.document]
		if at, known := position[c.Object]; known {
			of[at].Edits = slices.Concat(of[at].Edits, c.Edits)
			continue
		}
		position[c.Object] = len(of)
		byDocument[c.Object.document] = append(of, c)
	}
	for _, d := range s.documents {
		if byDocument[d] == nil {
			continue
		}
		t, err := d.apply(byDocument[d])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		trees[d] = t
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for d, t := range trees {
		d.tree = t
	}
	return nil
}

// apply returns the tree of the document with changes made.
func (d *Document) apply(changes []Change) (*tree, error) {
	t := d.tree
	want, _ := clone(t.value).(map[string]any)
	for _, c := range changes {
		for _, e := range c.Edits {
			err := e.validate()
			if c.Object.defect != nil {
				err = c.Object.defect
			}
			if err == nil {
				_, err = e.applyTo(c.Object.value(want))
			}
			if err != nil {
				return nil, c.Object.failed(e, err)
			}
		}
	}
	defer t.forget()
	if edited, ok := t.write(changes, want, false); ok {
		edited.forget()
		return edited, nil
	}
	for _, c := range changes {
		for _, e := range c.Edits {
			var err error
			if t, err = t.edit(Change{c.Object, []Edit{e}}); err != nil {
				return nil, c.Object.failed(e, err)
			}
		}
	}
	return t, nil
}

// failed is the error for an edit of the object.
func (o *Object) failed(e Edit, err error) error {
	return fmt.Errorf("editing %s: document %d, line %d: %s: %w", o.File(), o.Document(), o.line, e.field(), err)
}

// write returns the tree with changes made in its text, if that has the wanted value then.
func (t *tree) write(changes []Change, want map[string]any, quoted bool) (*tree, bool) {
	var splices []splice
	for _, c := range changes {
		of, ok := t.splices(c, want, quoted)
		if !ok {
			return nil, false
		}
		splices = append(splices, of...)
	}
	if len(splices) == 0 && reflect.DeepEqual(t.value, want) {
		return t, true
	}
	src, ok := t.splice(splices)
	if !ok {
		return nil, false
	}
	edited, err := t.with(src, want)
	if err != nil && !endsLine(src) {
		edited, err = t.with(src+t.eol(), want) // a block scalar at the end has to end its line
	}
	return edited, err == nil
}

// edit returns the tree with a single edit made. It tries the ways to write the edit, the one that touches the fewest
// lines first, and takes the first that parses and has the wanted value.
func (t *tree) edit(c Change) (*tree, error) {
	want, _ := clone(t.value).(map[string]any)
	pruned, err := c.Edits[0].applyTo(c.Object.value(want))
	if err != nil {
		return nil, err
	}
	for _, quoted := range []bool{false, true} {
		if edited, ok := t.write([]Change{c}, want, quoted); ok {
			return edited, nil
		}
	}
	if t.isJSON {
		return nil, errors.New("the place cannot be edited in this JSON")
	}
	if edited, ok := t.encode(c.Edits[0], c.Object.item, pruned, want); ok {
		return edited, nil
	}
	return nil, errors.New("the place cannot be edited without changing another one, " +
		"does it use an anchor or a merge key?")
}

// with parses an edited source and returns it if it is one document of the wanted value.
func (t *tree) with(src string, want map[string]any) (*tree, error) {
	if len(split(src)) > 1 {
		return nil, errors.New("the edit would split the document")
	}
	edited, err := parse(src)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(edited.value, want) || edited.defect != nil && t.defect == nil {
		return nil, errors.New("the edit would change another value")
	}
	return edited, nil
}

// clone copies a JSON-compatible value.
func clone(value any) any {
	switch v := value.(type) {
	case []any:
		items := slices.Clone(v)
		for i := range items {
			items[i] = clone(items[i])
		}
		return items
	case map[string]any:
		fields := make(map[string]any, len(v))
		for key, field := range v {
			fields[key] = clone(field)
		}
		return fields
	}
	return value
}
