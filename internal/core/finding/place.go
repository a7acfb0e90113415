package finding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Kind is the kind of thing that the path of a Place leads to.
type Kind int

const (
	// InField is a field, or the object as a whole if the path is empty.
	InField Kind = iota
	// InKey is one key of a Secret. The path is its name, or the field of a manifest that holds it, such as data and
	// its name.
	InKey
	// InKeys are several keys of a Secret, each a step of the path, or all of them if the path is empty.
	InKeys
	// InOption is a label, an annotation or a variable of a Cluster or a pool.
	InOption
	// InObject is a field of an object that the reader does not see: its name precedes the path.
	InObject
)

// Step is one step of a path.
type Step struct {
	// Name is the name of a field, or for an item of a list its name or its position counted from 0.
	Name string
	// Item reports whether the step is an item of a list.
	Item bool
}

// Place is where a finding is. The zero value is nowhere in particular.
type Place struct {
	// Object is the object's name in messages, for example "Secret team-a/proxy". It is "" if the context names it.
	Object string
	Kind   Kind
	Path   []Step
	// Entry is the position in a list that is one text, counted from 1; 0 is the text as a whole.
	Entry int
	// Shown is the value at the place for people, quoted and without what may be a credential, or "".
	Shown string
}

// Field returns the place of a field.
func Field(names ...string) Place { return Place{}.Child(names...) }

// Option returns the place of a label, an annotation or a variable, or of a field of a variable.
func Option(names ...string) Place { return Place{Kind: InOption}.Child(names...) }

// Annotation returns the place of an annotation.
func Annotation(key string) Place { return Option("metadata", "annotations", key) }

// Label returns the place of a label.
func Label(key string) Place { return Option("metadata", "labels", key) }

// Key returns the place of a key of a Secret.
func Key(path ...string) Place { return Place{Kind: InKey}.Child(path...) }

// Keys returns the place of several keys of a Secret, or of all of them.
func Keys(names ...string) Place { return Place{Kind: InKeys}.Child(names...) }

// Child returns the place of a field in p.
func (p Place) Child(names ...string) Place {
	path := make([]Step, len(p.Path), len(p.Path)+len(names))
	copy(path, p.Path)
	for _, name := range names {
		path = append(path, Step{Name: name})
	}
	p.Path = path
	return p
}

// Item returns the place of an item of the list at p, by its name.
func (p Place) Item(name string) Place {
	p.Path = append(slices.Clip(p.Path), Step{Name: name, Item: true})
	return p
}

// Index returns the place of an item of the list at p, by its position counted from 0.
func (p Place) Index(i int) Place { return p.Item(strconv.Itoa(i)) }

// At returns the place of an entry of the text at p, counted from 1.
func (p Place) At(entry int) Place {
	p.Entry = entry
	return p
}

// Show returns the same place with the value that is there, see Place.Shown.
func (p Place) Show(quoted string) Place {
	p.Shown = quoted
	return p
}

// Of returns the same place in an object.
func (p Place) Of(object string) Place {
	p.Object = object
	return p
}

// IsZero reports whether p is nowhere in particular.
func (p Place) IsZero() bool {
	return p.Object == "" && p.Kind == InField && len(p.Path) == 0 && p.Entry == 0
}

// Equal reports whether p and q are the same place, whatever value they show.
func (p Place) Equal(q Place) bool {
	return p.Object == q.Object && p.Kind == q.Kind && p.Entry == q.Entry && slices.Equal(p.Path, q.Path)
}

// MarshalText implements encoding.TextMarshaler with the text of String.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String returns the place in words, for example `Secret team-a/proxy, key noProxy entry 3 "10.0.0.0/33"` or
// "annotation capi-proxy-patcher.io/secret of MachineDeployment md".
func (p Place) String() string {
	text := p.path()
	if p.Entry > 0 {
		noun := "entry"
		if p.Kind == InKey && text == "key "+contract.KeyTrustedCA {
			noun = "certificate"
		}
		text += fmt.Sprintf(" %s %d", noun, p.Entry)
	}
	if p.Shown != "" {
		text += " " + p.Shown
	}
	switch {
	case p.Object == "":
		return text
	case text == "":
		return p.Object
	case p.Kind == InKey || p.Kind == InKeys || p.Kind == InObject:
		return p.Object + ", " + text
	default:
		return text + " of " + p.Object
	}
}

// path returns the words for the path alone.
func (p Place) path() string {
	switch {
	case p.Kind == InKey && len(p.Path) == 1:
		name := p.Path[0].Name
		if !slices.Contains(contract.SecretKeys(), name) {
			name = strconv.Quote(name)
		}
		return "key " + name
	case p.Kind == InKeys && len(p.Path) == 0:
		return "keys"
	case p.Kind == InKeys:
		names := make([]string, len(p.Path))
		for i, step := range p.Path {
			names[i] = step.Name
		}
		return "keys " + strings.Join(names, " and ")
	case p.isMetadata("annotations"):
		return "annotation " + p.Path[2].Name
	case p.isMetadata("labels"):
		return "label " + p.Path[2].Name
	}
	var b strings.Builder
	for i, step := range p.Path {
		switch {
		case step.Item:
			b.WriteString("[" + step.Name + "]")
		case i > 0:
			b.WriteString("." + step.Name)
		default:
			b.WriteString(step.Name)
		}
	}
	return b.String()
}

// isMetadata reports whether p is one of the annotations or of the labels of the object.
func (p Place) isMetadata(field string) bool {
	return len(p.Path) == 3 && p.Path[0].Name == "metadata" && p.Path[1].Name == field && !p.Path[2].Item
}
