package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
)

// Originals are files of users whose places managed files have taken, by kind/name of the bootstrap object and then by
// the path of the managed file. Each is the entry of files as it stood in the object, in JSON.
type Originals map[string]map[string]json.RawMessage

// ParseOriginals reads what Encode has written. Nothing written is no originals.
func ParseOriginals(text []byte) (Originals, error) {
	if len(text) == 0 {
		return Originals{}, nil
	}
	var originals Originals
	if err := json.Unmarshal(text, &originals); err != nil {
		return nil, errors.New("not a JSON object of objects of files; restore it from a backup, or delete it if no original is to be put back")
	}
	return originals, nil
}

// Encode writes originals, the same bytes for the same originals.
func (o Originals) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding original files: %w", err)
	}
	return text, nil
}

// EnsureOrAdopt returns the edits of Ensure for an object whose user's files are kept elsewhere: with adopt, files that stand
// in the way give way to managed ones. Its errors are those of Ensure.
func EnsureOrAdopt(spec Spec, recipe Recipe, adopt bool) ([]Edit, error) {
	var edits []Edit
	if adopt {
		edits = Adopt(spec, recipe, func(int) bool { return true })
	}
	plan, err := Ensure(Apply(spec, edits), recipe)
	if err != nil {
		return nil, err
	}
	return append(edits, plan.Edits...), nil
}

// Adopt returns the edits that put managed files of recipe into the places of files of the user that stand in the way,
// one for each managed file. may says of the entry at an index whether it may be taken over. What is left in the way
// after that is still a conflict for Ensure.
func Adopt(spec Spec, recipe Recipe, may func(index int) bool) []Edit {
	var edits []Edit
	for _, want := range recipe.Files {
		if slices.ContainsFunc(spec.Files, func(f File) bool { return IsManagedFile(f) && path.Clean(f.Path) == want.Path }) {
			continue
		}
		for i, f := range spec.Files {
			if !IsManagedFile(f) && standsInTheWay(f, want) && may(i) {
				edits = append(edits, Edit{List: ListFiles, Op: OpReplace, Index: i, File: want})
				break
			}
		}
	}
	return edits
}

// Take returns the edits that take every managed entry out of spec, and put an original back where its managed file
// stands. originals are those of the object, by the path of the managed file.
func Take(spec Spec, originals map[string]json.RawMessage) []Edit {
	var edits []Edit
	for i, f := range spec.Files {
		original, kept := originals[path.Clean(f.Path)]
		if kept && IsManagedFile(f) {
			edits = append(edits, Edit{List: ListFiles, Op: OpReplace, Index: i, File: fileOfJSON(original)})
		}
	}
	return append(edits, Remove(Apply(spec, edits))...)
}

// fileOfJSON returns an entry of files that is written as it stands.
func fileOfJSON(text json.RawMessage) File {
	var entry map[string]any
	if err := json.Unmarshal(text, &entry); err != nil {
		return File{}
	}
	f := fileOfMap(entry)
	f.Original = string(text)
	return f
}

// SameEntry reports whether an entry of files, decoded from JSON, says the same as an original.
func SameEntry(entry any, original json.RawMessage) bool {
	var kept any
	return json.Unmarshal(original, &kept) == nil && reflect.DeepEqual(entry, kept)
}
