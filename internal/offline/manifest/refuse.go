package manifest

import (
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// refuse returns why changes cannot be made in the text, and what to write instead: an error for each place on the path
// of an edit whose value is elsewhere, or is shared with another place, or else one for the first edit.
func (t *tree) refuse(changes []Change) error {
	var errs []error
	for _, c := range changes {
		for _, e := range c.Edits {
			line, why := t.obstacle(c.Object.item, e.Path)
			if why == "" {
				continue
			}
			err := c.Object.wrap(line, errors.New(why))
			if !slices.ContainsFunc(errs, func(other error) bool { return other.Error() == err.Error() }) {
				errs = append(errs, err)
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if _, err := t.closed(); err != nil {
		return changes[0].Object.failed(changes[0].Edits[0], err)
	}
	return changes[0].Object.failed(changes[0].Edits[0], errors.New("the surrounding text does not allow editing it; "+
		"write it in block style or as indented JSON, without anchors, aliases and tags"))
}

// closed returns the tree with a line break after its last line. It is an error if that would be part of a value.
func (t *tree) closed() (*tree, error) {
	if endsLine(t.src) {
		return t, nil
	}
	closed, err := t.with(t.src+t.eol(), t.value)
	if err != nil {
		return nil, errors.New("its last line belongs to a block scalar (|) and lacks a line break, " +
			"which would be part of the value; end it with a line break, or write |- for |")
	}
	return closed, nil
}

// obstacle returns the first place on a path at which an edit cannot be made, by its line in the document, and what to
// write instead; nothing if there is none.
func (t *tree) obstacle(item int, path []string) (line int, why string) {
	n, called := t.root(), "the object"
	if item >= 0 {
		path = append([]string{"items"}, path...)
		called = "the list"
	}
	for {
		switch {
		case n.Kind == yaml.AliasNode:
			what := map[yaml.Kind]string{
				yaml.MappingNode: "mapping", yaml.SequenceNode: "list",
				yaml.ScalarNode: "value",
			}[n.Alias.Kind]
			return n.Line, fmt.Sprintf("%s is an alias (*%s); write the %s out", called, n.Value, what)
		case n.Anchor != "":
			return n.Line, fmt.Sprintf("%s has an anchor (&%s); remove it, and write the value out where its aliases are",
				called, n.Anchor)
		case n.Style&yaml.TaggedStyle != 0:
			return n.Line, fmt.Sprintf("%s has a tag (%s); remove it", called, n.Tag)
		case n.Kind == yaml.SequenceNode && item >= 0:
			n, item, called = n.Content[item], -1, "the object"
			continue
		case n.Kind != yaml.MappingNode || len(path) == 0:
			return 0, ""
		}
		at, merge := keyIndex(n, path[0]), keyIndex(n, "<<")
		switch {
		case at < 0 && merge >= 0:
			return n.Content[merge].Line, fmt.Sprintf("%s has a merge key (<<); write out what it adds", called)
		case at < 0:
			return 0, ""
		}
		switch called {
		case "the list":
		case "the object":
			called = path[0]
		default:
			called += "." + path[0]
		}
		n, path = n.Content[at+1], path[1:]
	}
}
