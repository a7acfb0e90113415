package patch

import (
	"encoding/json"
	"fmt"
	"strconv"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
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
	// Decoded reports that the object was decoded: what it lacks may hold fields that the caller's types do not know.
	Decoded bool
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
	operations := make([]Operation, 0, 1+len(missing)+len(edits))
	if at.Decoded && at.Missing > 0 {
		operations = append(operations, IsAbsent(missing[0]))
	}
	for _, parent := range missing {
		operations = append(operations, Operation{Op: "add", Path: parent, Value: struct{}{}})
	}
	none := len(operations)
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
	case len(operations) == none:
		return nil
	case left == 0:
		return append(operations[none:], removal(at)...)
	}
	return operations
}

// IsAbsent returns the operation that fails if there is a field. For the library of the API server, null is absent.
func IsAbsent(path string) Operation {
	return Operation{Op: "test", Path: path, Value: json.RawMessage("null")}
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

// EncodePatch returns a JSON patch as text, "[]" without operations.
func EncodePatch(operations []Operation) ([]byte, error) {
	if operations == nil {
		operations = []Operation{}
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding a JSON patch: %w", err)
	}
	return text, nil
}

// MarshalJSON returns f as Cluster API's type encodes it.
func (f File) MarshalJSON() ([]byte, error) {
	file := bootstrapv1.File{Path: f.Path, Owner: f.Owner, Permissions: f.Permissions}
	if f.ContentFrom == (SecretKey{}) {
		file.Content = f.Content
	} else {
		file.ContentFrom.Secret = bootstrapv1.SecretFileSource(f.ContentFrom)
	}
	return json.Marshal(file)
}
