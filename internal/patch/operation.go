package patch

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Operation is one operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Location is where a bootstrap spec is in its object.
type Location struct {
	// Parents are the JSON pointers (RFC 6901) from the outermost object to the bootstrap spec itself, for example
	// /spec, /spec/template, /spec/template/spec.
	Parents []string
	// Missing is how many of the last Parents the object does not have.
	Missing int
	// Alone is how many of the last Parents hold only the three lists or the next parent, and are removed when the
	// lists are empty. The API server accepts none of them empty.
	Alone int
}

// Operations converts edits of spec at a location to a JSON patch. It compares the lists before and after the edits: a
// list that becomes empty is removed, with the parents that become empty, and one that was empty is written as a whole,
// with missing parents. Otherwise each edit is one operation, so that no entry of the user is written: the controller
// does not hold their contents.
func Operations(at Location, spec Spec, edits []Edit) []Operation {
	if len(edits) == 0 {
		return nil
	}
	after := Apply(spec, edits)
	root := at.Parents[len(at.Parents)-1]
	var operations []Operation
	left := 0
	for _, list := range []struct {
		name       List
		had, has   int
		everything any
	}{
		{ListFiles, len(spec.Files), len(after.Files), after.Files},
		{ListPre, len(spec.PreKubeadmCommands), len(after.PreKubeadmCommands), after.PreKubeadmCommands},
		{ListPost, len(spec.PostKubeadmCommands), len(after.PostKubeadmCommands), after.PostKubeadmCommands},
	} {
		path := root + "/" + string(list.name)
		left += list.has
		switch {
		case list.had == 0 && list.has == 0:
		case list.has == 0:
			operations = append(operations, Operation{Op: "remove", Path: path})
		case list.had == 0:
			operations = append(operations, Operation{Op: "add", Path: path, Value: list.everything})
		default:
			operations = append(operations, entries(path, list.name, edits)...)
		}
	}
	if len(operations) == 0 {
		return nil
	}
	if left == 0 {
		return append(operations, removal(at)...)
	}
	missing := at.Parents[len(at.Parents)-at.Missing:]
	parents := make([]Operation, 0, len(missing)+len(operations))
	for _, parent := range missing {
		parents = append(parents, Operation{Op: "add", Path: parent, Value: struct{}{}})
	}
	return append(parents, operations...)
}

// entries returns the operations of the edits of a list.
func entries(path string, list List, edits []Edit) []Operation {
	operations := make([]Operation, 0, len(edits))
	for i := range edits {
		edit := &edits[i]
		if edit.List != list {
			continue
		}
		operation := Operation{Op: string(edit.Op), Path: path + "/" + strconv.Itoa(edit.Index)}
		switch {
		case edit.Op == OpRemove:
		case list == ListFiles:
			operation.Value = &edit.File
		default:
			operation.Value = edit.Command
		}
		operations = append(operations, operation)
	}
	return operations
}

// removal returns the operations that remove the parents that become empty with the spec. They fail if a parent is not
// empty, because it has a field that the caller's types do not know.
func removal(at Location) []Operation {
	operations := make([]Operation, 0, 2*at.Alone)
	for i := range at.Alone {
		parent := at.Parents[len(at.Parents)-1-i]
		operations = append(operations,
			Operation{Op: "test", Path: parent, Value: struct{}{}}, Operation{Op: "remove", Path: parent})
	}
	return operations
}

// Encoder writes JSON patches like encoding/json, but faster. Its zero value is ready to use.
type Encoder struct {
	files map[File][]byte // in JSON
	text  []byte
}

// Encode writes a JSON patch, which is valid until the next call.
func (e *Encoder) Encode(operations []Operation) ([]byte, error) {
	text := append(slices.Grow(e.text[:0], 4<<10), '[')
	for i, operation := range operations {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, `{"op":"`...), operation.Op...)
		var err error
		if text, err = AppendString(append(text, `","path":`...), operation.Path); err != nil {
			return nil, err
		}
		if operation.Value != nil {
			if text, err = e.appendValue(append(text, `,"value":`...), operation.Value); err != nil {
				return nil, err
			}
		}
		text = append(text, '}')
	}
	text = append(text, ']')
	e.text = text
	return text, nil
}

// appendValue appends the value of an operation.
func (e *Encoder) appendValue(text []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case struct{}:
		return append(text, "{}"...), nil
	case string:
		return AppendString(text, v)
	case *File:
		file, known := e.files[*v]
		if !known {
			var err error
			if file, err = v.MarshalJSON(); err != nil {
				return nil, err
			}
			if e.files == nil {
				e.files = map[File][]byte{}
			}
			e.files[*v] = file
		}
		return append(text, file...), nil
	case []File:
		return e.appendList(text, len(v), func(i int) any { return &v[i] })
	case []string:
		return e.appendList(text, len(v), func(i int) any { return v[i] })
	}
	encoded, err := json.Marshal(value)
	return append(text, encoded...), err
}

// appendList appends a list of such values.
func (e *Encoder) appendList(text []byte, entries int, entry func(int) any) ([]byte, error) {
	text = append(text, '[')
	for i := range entries {
		if i > 0 {
			text = append(text, ',')
		}
		var err error
		if text, err = e.appendValue(text, entry(i)); err != nil {
			return nil, err
		}
	}
	return append(text, ']'), nil
}

// Field is one field of a File in the order in which it is written.
type Field struct {
	Name string
	// Text is the value, unless Fields are.
	Text   string
	Fields []Field
}

// Fields returns f in the form of a manifest.
func (f File) Fields() []Field {
	fields := append(make([]Field, 0, 4), Field{Name: "path", Text: f.Path}, Field{Name: "owner", Text: f.Owner},
		Field{Name: "permissions", Text: f.Permissions})
	switch {
	case f.ContentFrom != (SecretKey{}):
		key := []Field{{Name: "name", Text: f.ContentFrom.Name}, {Name: "key", Text: f.ContentFrom.Key}}
		return append(fields, Field{Name: "contentFrom", Fields: []Field{{Name: "secret", Fields: key}}})
	case f.Content != "":
		return append(fields, Field{Name: "content", Text: f.Content})
	}
	return fields
}

// Map returns f in the form of decoded JSON.
func (f File) Map() map[string]any {
	var object map[string]any
	if text, err := f.MarshalJSON(); err == nil {
		_ = json.Unmarshal(text, &object) // it has just been written
	}
	return object
}

// MarshalJSON returns f in the form of an object: an original verbatim, any other by its Fields.
func (f File) MarshalJSON() ([]byte, error) {
	if f.Original != "" {
		return []byte(f.Original), nil
	}
	return appendFields(make([]byte, 0, 256), f.Fields())
}

// appendFields appends fields to text as an object in JSON.
func appendFields(text []byte, fields []Field) ([]byte, error) {
	for i, field := range fields {
		text = append(append(append(text, "{,"[min(i, 1)]), '"'), field.Name...)
		text = append(text, '"', ':')
		var err error
		if field.Fields != nil {
			text, err = appendFields(text, field.Fields)
		} else {
			text, err = AppendString(text, field.Text)
		}
		if err != nil {
			return nil, err
		}
	}
	return append(text, '}'), nil
}

// AppendString appends s to text in the form of encoding/json.
func AppendString(text []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			return append(text, quoted...), err
		}
	}
	return append(append(append(text, '"'), s...), '"'), nil
}
