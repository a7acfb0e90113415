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

// Location says where a bootstrap spec is in its object.
type Location struct {
	// Parents are the JSON pointers (RFC 6901) from the outermost object to the bootstrap spec itself, for example
	// /spec, /spec/template, /spec/template/spec.
	Parents []string
	// Missing is how many of the last Parents the object does not have.
	Missing int
	// Others reports whether the bootstrap spec has fields beside the three lists.
	Others bool
}

// Operations turns edits of spec at a location into a JSON patch. Lists and parents that are missing are created,
// and those that the edits leave empty are removed: Cluster API accepts neither an empty list nor an empty spec,
// so an empty one was not there before either.
func Operations(at Location, spec Spec, edits []Edit) []Operation {
	if len(edits) == 0 {
		return nil
	}
	var operations []Operation
	for _, parent := range at.Parents[len(at.Parents)-at.Missing:] {
		operations = append(operations, Operation{Op: "add", Path: parent, Value: struct{}{}})
	}
	root := at.Parents[len(at.Parents)-1]
	sizes := map[List]int{ListFiles: len(spec.Files), ListPre: len(spec.PreKubeadmCommands), ListPost: len(spec.PostKubeadmCommands)}
	lists := []List{ListFiles, ListPre, ListPost}
	before := map[List]bool{}
	for _, list := range lists {
		before[list] = sizes[list] > 0
	}
	created := map[List]bool{}
	for _, edit := range edits {
		path := root + "/" + string(edit.List)
		if !before[edit.List] && !created[edit.List] {
			created[edit.List] = true
			operations = append(operations, Operation{Op: "add", Path: path, Value: []any{}})
		}
		operation := Operation{Op: string(edit.Op), Path: path + "/" + strconv.Itoa(edit.Index)}
		switch {
		case edit.Op == OpRemove:
			sizes[edit.List]--
		case edit.List == ListFiles:
			operation.Value = edit.File
		default:
			operation.Value = edit.Command
		}
		if edit.Op == OpAdd {
			sizes[edit.List]++
		}
		operations = append(operations, operation)
	}
	empty := !at.Others
	for _, list := range lists {
		empty = empty && sizes[list] == 0
		if sizes[list] == 0 && before[list] {
			operations = append(operations, Operation{Op: "remove", Path: root + "/" + string(list)})
		}
	}
	if empty {
		operations = append(operations, Operation{Op: "remove", Path: root})
	}
	return operations
}

// Field is one field of a File in the order in which it is written.
type Field struct {
	Name  string
	Value any // string or []Field
}

// Fields returns f as it stands in a manifest.
func (f File) Fields() []Field {
	fields := []Field{{"path", f.Path}, {"owner", f.Owner}, {"permissions", f.Permissions}}
	if f.ContentFrom != (SecretKey{}) {
		return append(fields, Field{"contentFrom", []Field{{"secret", []Field{{"name", f.ContentFrom.Name}, {"key", f.ContentFrom.Key}}}}})
	}
	return append(fields, Field{"content", f.Content})
}

// Map returns f as it is decoded from JSON.
func (f File) Map() map[string]any { return mapOfFields(f.Fields()) }

func mapOfFields(fields []Field) map[string]any {
	object := make(map[string]any, len(fields))
	for _, field := range fields {
		if inner, nested := field.Value.([]Field); nested {
			object[field.Name] = mapOfFields(inner)
			continue
		}
		object[field.Name] = field.Value
	}
	return object
}

type fileSource struct {
	Secret struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	} `json:"secret"`
}

type fileObject struct {
	Path        string      `json:"path"`
	Owner       string      `json:"owner"`
	Permissions string      `json:"permissions"`
	Content     string      `json:"content,omitempty"`
	ContentFrom *fileSource `json:"contentFrom,omitempty"`
}

// MarshalJSON returns f as it stands in an object.
func (f File) MarshalJSON() ([]byte, error) { return json.Marshal(f.object()) }

// object returns f in the form of the API.
func (f File) object() any {
	if f.Original != "" {
		return json.RawMessage(f.Original)
	}
	object := fileObject{Path: f.Path, Owner: f.Owner, Permissions: f.Permissions, Content: f.Content}
	if f.ContentFrom != (SecretKey{}) {
		object.ContentFrom = &fileSource{}
		object.ContentFrom.Secret.Name, object.ContentFrom.Secret.Key = f.ContentFrom.Name, f.ContentFrom.Key
	}
	return object
}
