package manifest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Change is a sequence of edits of one object. They are applied one after the other; an index refers to the list after
// the edits before it, as in JSON Patch (RFC 6902).
type Change struct {
	Object *Object
	Edits  []Edit
}

// Apply makes changes of objects of the stream. If one cannot be made, none is, and the error names file, document and
// field of each that cannot. A document is parsed once more, however many changes it has.
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
			if c.Object.defect != nil {
				return nil, c.Object.failed(e, c.Object.defect)
			}
			if err := e.applyTo(c.Object.value(want)); err != nil {
				return nil, c.Object.failed(e, err)
			}
		}
	}
	defer t.forget()
	if edited, ok := t.write(changes, want); ok {
		edited.forget()
		return edited, nil
	}
	return nil, t.refuse(changes)
}

// failed is the error for an edit of the object.
func (o *Object) failed(e Edit, err error) error {
	return o.wrap(o.line-o.document.line+1, fmt.Errorf("%s: %w", e.field(), err))
}

// wrap adds the place of the object to an error, given a line of the document, and its name.
func (o *Object) wrap(line int, err error) error {
	if name := o.String(); name != "" {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("editing %s: document %d, line %d: %w", o.File(), o.Document(), o.document.line+line-1, err)
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
