package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Originals are files of users that managed files have replaced, by kind/name of the bootstrap object and then by the
// path of the managed file. Each is the entry of files as it was in the object, in JSON.
type Originals map[string]map[string]json.RawMessage

// ParseOriginals reads the output of Encode. Empty input is no originals.
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
		return nil, errors.New(
			"not a JSON object of objects of files; restore it from a backup, or delete it if no original is to be put back")
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

// EnsureOrAdopt returns the edits of Ensure for an object whose user's files are kept elsewhere: with adopt, managed
// files replace conflicting ones. Its errors are those of Ensure.
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

// Adopt returns the edits that replace conflicting files of the user by managed files of recipe, one for each managed
// file. may reports whether the entry at an index may be taken over. Files that still conflict after that are a
// conflict for Ensure.
func Adopt(spec Spec, recipe Recipe, may func(index int) bool) []Edit {
	var edits []Edit
	for _, want := range recipe.Files {
		if slices.ContainsFunc(spec.Files, func(f File) bool { return IsManagedFile(f) && clean(f.Path) == want.Path }) {
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

// Adopted returns stored with those files of recipe in place of the user's that asked may have adopted, and whether
// there are any: asked has the managed file, and not the one that conflicts with it.
func Adopted(stored, asked Spec, recipe Recipe) (adopted Spec, found bool) {
	adopted = stored
	adopted.Files = slices.Clone(stored.Files)
	for _, want := range recipe.Files {
		inTheWay := func(f File) bool { return !IsManagedFile(f) && standsInTheWay(f, want) }
		if i := slices.IndexFunc(adopted.Files, inTheWay); i >= 0 && slices.Contains(asked.Files, want) &&
			!slices.ContainsFunc(asked.Files, inTheWay) {
			adopted.Files[i], found = want, true
		}
	}
	return adopted, found
}

// Bring is Ensure for an object with originals, by the path of the managed file: a managed file that recipe does not
// have is replaced by its original instead of removed.
func Bring(spec Spec, recipe Recipe, originals map[string]json.RawMessage) (Plan, error) {
	back := giveBack(spec, recipe, originals)
	plan, err := Ensure(Apply(spec, back), recipe)
	if err != nil {
		return Plan{}, err
	}
	if len(back) > 0 {
		plan.Edits = append(back, plan.Edits...)
	}
	return plan, nil
}

// Take returns the edits that remove every managed entry from spec, and restore each original in place of its managed
// file. originals are those of the object, by the path of the managed file.
func Take(spec Spec, originals map[string]json.RawMessage) []Edit {
	back := giveBack(spec, Recipe{}, originals)
	return append(back, Remove(Apply(spec, back))...)
}

// giveBack returns the edits that replace managed files which recipe does not have by their originals. An original is
// obsolete if a file of the user now has its path.
func giveBack(spec Spec, recipe Recipe, originals map[string]json.RawMessage) []Edit {
	var edits []Edit
	for i, f := range spec.Files {
		text, kept := originals[clean(f.Path)]
		if !kept || !isSurplus(f, recipe) {
			continue
		}
		original := fileOfJSON(text)
		obsolete := slices.ContainsFunc(spec.Files, func(own File) bool {
			return !IsManagedFile(own) && clean(own.Path) == clean(original.Path)
		})
		if !obsolete {
			edits = append(edits, Edit{List: ListFiles, Op: OpReplace, Index: i, File: original})
		}
	}
	return edits
}

// GivesUp reports whether Ensure removes a managed file from spec, so that its original matters.
func GivesUp(spec Spec, recipe Recipe) bool {
	return slices.ContainsFunc(spec.Files, func(f File) bool { return isSurplus(f, recipe) })
}

// isSurplus reports whether f is a managed file that recipe does not have.
func isSurplus(f File, recipe Recipe) bool {
	if !IsManagedFile(f) {
		return false
	}
	at := clean(f.Path)
	return !slices.ContainsFunc(recipe.Files, func(want File) bool { return want.Path == at })
}

// Place is where an original is.
type Place int

// The places of an original.
const (
	// Nowhere: the object has neither the managed file that replaced it nor a file of the user in its place.
	Nowhere Place = iota
	// Replaced: a managed file is in its place.
	Replaced
	// Back: the user has a file again where the managed one was, the original or a newer one.
	Back
)

// PlaceOf returns where the original is that the managed file at a path has replaced.
func PlaceOf(spec Spec, managed string) Place {
	place := Nowhere
	for _, f := range spec.Files {
		switch {
		case IsManagedFile(f) && clean(f.Path) == managed:
			return Replaced
		case !IsManagedFile(f) && standsInTheWay(f, File{Path: managed}):
			place = Back
		}
	}
	return place
}

// Spared returns the paths of the user's files that managed files of other recipes would replace, in the order of spec:
// adoption would take them over with another choice of targets.
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

// fileOfJSON returns an entry of files that is written verbatim.
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
