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
	err := json.Unmarshal(text, &originals)
	for _, files := range originals {
		for _, file := range files {
			if fileOfJSON(file).Path == "" {
				err = errors.New("an original is no file")
			}
		}
	}
	if err != nil {
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

// EnsureOrAdopt returns the edits of Ensure for an object whose user's files are kept elsewhere: with adopt, files
// that stand in the way give way to managed ones. Its errors are those of Ensure.
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

// Bring is Ensure for an object of whose files some are kept as originals, by the path of the managed file: a managed
// file that recipe does not have is not removed but replaced by its original.
func Bring(spec Spec, recipe Recipe, originals map[string]json.RawMessage) (Plan, error) {
	back := giveBack(spec, recipe, originals)
	plan, err := Ensure(Apply(spec, back), recipe)
	if err != nil {
		return Plan{}, err
	}
	plan.Edits = append(back, plan.Edits...)
	return plan, nil
}

// Take returns the edits that take every managed entry out of spec, and put an original back where its managed file
// stands. originals are those of the object, by the path of the managed file.
func Take(spec Spec, originals map[string]json.RawMessage) []Edit {
	back := giveBack(spec, Recipe{}, originals)
	return append(back, Remove(Apply(spec, back))...)
}

// giveBack returns the edits that replace managed files which recipe does not have by their originals. An original
// whose path a file of the user's has by now is obsolete.
func giveBack(spec Spec, recipe Recipe, originals map[string]json.RawMessage) []Edit {
	var edits []Edit
	for i, f := range spec.Files {
		text, kept := originals[path.Clean(f.Path)]
		if !kept || !isSurplus(f, recipe) {
			continue
		}
		original := fileOfJSON(text)
		obsolete := slices.ContainsFunc(spec.Files, func(own File) bool {
			return !IsManagedFile(own) && path.Clean(own.Path) == path.Clean(original.Path)
		})
		if !obsolete {
			edits = append(edits, Edit{List: ListFiles, Op: OpReplace, Index: i, File: original})
		}
	}
	return edits
}

// GivesUp reports whether Ensure takes a managed file out of spec, so that its original matters.
func GivesUp(spec Spec, recipe Recipe) bool {
	return slices.ContainsFunc(spec.Files, func(f File) bool { return isSurplus(f, recipe) })
}

// isSurplus reports whether f is a managed file that recipe does not have.
func isSurplus(f File, recipe Recipe) bool {
	wanted := func(want File) bool { return want.Path == path.Clean(f.Path) }
	return IsManagedFile(f) && !slices.ContainsFunc(recipe.Files, wanted)
}

// Place is where an original is.
type Place int

// The places of an original.
const (
	// Nowhere: neither the managed file that replaced it nor a file of the user's that does its work is in the object.
	Nowhere Place = iota
	// Replaced: a managed file stands in its place.
	Replaced
	// Back: the user has a file again where the managed one was, the original or a newer one.
	Back
)

// PlaceOf returns where the original is whose place the managed file at a path has taken.
func PlaceOf(spec Spec, managed string) Place {
	place := Nowhere
	for _, f := range spec.Files {
		switch {
		case IsManagedFile(f) && path.Clean(f.Path) == managed:
			return Replaced
		case !IsManagedFile(f) && standsInTheWay(f, File{Path: managed}):
			place = Back
		}
	}
	return place
}

// Spared returns the paths of files of the user's that stand where managed files of other recipes would, in the order
// of spec: adoption would take them over with another choice of targets.
func Spared(spec Spec, recipe Recipe) []string {
	var paths []string
	for _, f := range spec.Files {
		wanted := func(want File) bool { return standsInTheWay(f, want) }
		if IsManagedPath(f.Path) && !IsManagedFile(f) && !slices.ContainsFunc(recipe.Files, wanted) {
			paths = append(paths, f.Path)
		}
	}
	return paths
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
