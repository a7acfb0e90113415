package patch

import (
	"encoding/json"
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
	root, missing := at.Parents[len(at.Parents)-1], at.Parents[len(at.Parents)-at.Missing:]
	operations := make([]Operation, 0, len(missing)+len(edits))
	for _, parent := range missing {
		operations = append(operations, Operation{Op: "add", Path: parent, Value: struct{}{}})
	}
	left := 0
	for _, list := range []struct {
		name  List
		had   int
		after func() any
	}{
		{ListFiles, len(spec.Files), func() any { return Apply(spec, edits).Files }},
		{ListPre, len(spec.PreKubeadmCommands), func() any { return Apply(spec, edits).PreKubeadmCommands }},
		{ListPost, len(spec.PostKubeadmCommands), func() any { return Apply(spec, edits).PostKubeadmCommands }},
	} {
		path, has := root+"/"+string(list.name), sizeAfter(list.had, list.name, edits)
		left += has
		switch {
		case list.had == 0 && has == 0:
		case has == 0:
			operations = append(operations, Operation{Op: "remove", Path: path})
		case list.had == 0:
			operations = append(operations, Operation{Op: "add", Path: path, Value: list.after()})
		default:
			operations = appendEntries(operations, path, list.name, edits)
		}
	}
	switch {
	case len(operations) == len(missing):
		return nil
	case left == 0:
		return append(operations[len(missing):], removal(at)...)
	}
	return operations
}

// appendEntries appends the operations of the edits of a list.
func appendEntries(operations []Operation, path string, list List, edits []Edit) []Operation {
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
			operation.Value = &edit.Command
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

// AppendPatch appends a JSON patch to text as encoding/json writes it, but faster.
func AppendPatch(text []byte, operations []Operation) ([]byte, error) {
	text = append(text, '[')
	for i := range operations {
		operation := &operations[i]
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, `{"op":"`...), operation.Op...)
		text = appendString(append(text, `","path":`...), operation.Path)
		if operation.Value != nil {
			var err error
			if text, err = appendValue(append(text, `,"value":`...), operation.Value); err != nil {
				return nil, err
			}
		}
		text = append(text, '}')
	}
	return append(text, ']'), nil
}

// appendValue appends the value of an operation.
func appendValue(text []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case *string:
		return appendString(text, *v), nil
	case *File:
		return appendFields(text, v.Fields()), nil
	case []File:
		return appendList(text, v, func(text []byte, f *File) []byte { return appendFields(text, f.Fields()) }), nil
	case []string:
		return appendList(text, v, func(text []byte, s *string) []byte { return appendString(text, *s) }), nil
	case struct{}:
		return append(text, "{}"...), nil
	}
	encoded, err := json.Marshal(value)
	return append(text, encoded...), err
}

// appendList appends a list.
func appendList[T any](text []byte, list []T, entry func([]byte, *T) []byte) []byte {
	text = append(text, '[')
	for i := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = entry(text, &list[i])
	}
	return append(text, ']')
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

// MarshalJSON returns f in the form of an object.
func (f File) MarshalJSON() ([]byte, error) {
	return appendFields(make([]byte, 0, 256), f.Fields()), nil
}

// appendFields appends fields to text as an object in JSON.
func appendFields(text []byte, fields []Field) []byte {
	for i, field := range fields {
		text = append(append(append(text, "{,"[min(i, 1)], '"'), field.Name...), '"', ':')
		if field.Fields != nil {
			text = appendFields(text, field.Fields)
		} else {
			text = appendString(text, field.Text)
		}
	}
	return append(text, '}')
}

// appendString appends s to text in the form of encoding/json.
func appendString(text []byte, s string) []byte {
	before, done := len(text), 0
	text = append(text, '"')
	for i := range len(s) {
		var escaped string
		switch c := s[i]; {
		case c == '"':
			escaped = `\"`
		case c == '\\':
			escaped = `\\`
		case c == '\n':
			escaped = `\n`
		case c == '<':
			escaped = `\u003c`
		case c == '>':
			escaped = `\u003e`
		case c == '&':
			escaped = `\u0026`
		case c < ' ' || c > '~':
			quoted, _ := json.Marshal(s) //nolint:errchkjson // a string
			return append(text[:before], quoted...)
		default:
			continue
		}
		text, done = append(append(text, s[done:i]...), escaped...), i+1
	}
	return append(append(text, s[done:]...), '"')
}
