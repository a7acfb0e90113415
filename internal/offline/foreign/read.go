package foreign

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// maxSize bounds the bytes that are read, with each use of an alias, and nodeSize for each value. maxDepth bounds the
// keys of a path.
const maxSize, nodeSize, maxDepth = 16 << 20, 64, 100

const notPlain = "%s is not NAME=VALUE with a plain value, and nothing is executed or expanded: write the value, in " +
	"single quotes and with %%%% for %% in a unit of systemd, and remove everything else"

var (
	errSize = errors.New("larger than 16 MiB, aliases included, or deeper than 100 keys; give the part with the settings")
	// dropIn and shellFile are in a file with variables.
	dropIn    = regexp.MustCompile(`(?m)^\[(Service|Manager)\][ \t\r]*$`)
	shellFile = regexp.MustCompile(`(?m)^((export|declare -x)[ \t]+)?(CONTAINERD_|TKG_)?(?i:https?|no)_(?i:proxy)=`)
	// assignment is export NAME, or NAME=VALUE with the quotes outside of the groups.
	assignment = regexp.MustCompile(`^(?:export(?:[ \t]+\w+)+|(?:(?:export|declare -x)[ \t]+)?(?:"(\w+=[^"$\\\x60]*)"|` +
		`'(\w+=[^']*)'|(\w+=)(?:"([^"$\\\x60]*)"|'([^']*)'|([^\s'"$\\\x60;&|<>()]*))))(?:[ \t;]+|$)`)
	lineNumber = regexp.MustCompile(`line [0-9]+`)
	dataKind   = regexp.MustCompile(`^(Secret|ConfigMap)$`) // its texts are read
)

// leaf is a path with a text, or the problem that there is none. Switches have the keys that are true as their text.
type leaf struct {
	path                 []string
	text, problem, place string
	switches             bool
}

// text reads a file with variables, or documents of YAML or JSON. Only a text within another one has a place; it may be
// something else.
func (r *reader) text(place, text string) error {
	if r.left -= len(text); r.left < 0 {
		return errSize
	} else if dropIn.MatchString(text) || shellFile.MatchString(text) {
		return r.variables(place, text)
	}
	// The parser does not take tabs of JSON, and no further document without a line of dashes.
	text = strings.NewReplacer("\n...\n", "\n---\n", "\t", " ").Replace(text)
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var n yaml.Node
		if err := decoder.Decode(&n); errors.Is(err, io.EOF) || err != nil && place != "" {
			return nil
		} else if err != nil {
			return fmt.Errorf("neither YAML nor JSON, %s", lineNumber.FindString(err.Error()))
		} else if err := r.document(place, n.Content[0]); err != nil {
			return err
		}
	}
}

// variables reads a drop-in of systemd or a shell file. Nothing is executed or expanded.
func (r *reader) variables(place, text string) error {
	var leaves []leaf
	systemd := dropIn.MatchString(text)
	for i, line := range strings.Split(strings.NewReplacer("\r\n", "\n", "\\\n", "").Replace(text), "\n") {
		here := cmp.Or(place, fmt.Sprintf("line %d", i+1))
		option, value, _ := strings.Cut(line, "=")
		switch option = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(option), "Default"), "Manager"); {
		case systemd && !strings.HasPrefix(option, "Environment"):
			continue
		case systemd && (option != "Environment" || strings.ContainsAny(strings.ReplaceAll(value, "%%", ""), "%;")):
			return fmt.Errorf(notPlain, here)
		case systemd:
			line = strings.ReplaceAll(value, "%%", "%")
		}
		for line = strings.TrimSpace(line); line != "" && line[0] != '#'; {
			m := assignment.FindStringSubmatch(line)
			if m == nil {
				return fmt.Errorf(notPlain, here)
			}
			name, value, _ := strings.Cut(strings.Join(m[1:], ""), "=")
			leaves, line = append(leaves, leaf{path: []string{name}, text: value, place: here}), line[len(m[0]):]
		}
	}
	return r.collect("", leaves)
}

// decode returns a text decoded from base64, or the text itself.
func decode(text string) string {
	if decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), "")); err == nil {
		return string(decoded)
	}
	return text
}

// child returns the value of a key of a mapping, or else another node.
func child(n *yaml.Node, key string, or *yaml.Node) *yaml.Node {
	n = cmp.Or(n.Alias, n)
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return cmp.Or(n.Content[i+1].Alias, n.Content[i+1])
		}
	}
	return or
}

// document reads one document, and the texts in it.
func (r *reader) document(place string, n *yaml.Node) error {
	kind := child(n, "kind", &yaml.Node{}).Value
	if group, _, found := strings.Cut(child(n, "apiVersion", &yaml.Node{}).Value, "/"); found {
		kind += "." + group
	}
	var leaves []leaf
	if err := r.flatten(&leaves, place, nil, n, n.Line); err != nil {
		return err
	}
	for i, l := range leaves {
		taken, inData := r.taken, dataKind.MatchString(kind) && len(l.path) == 2
		if decoded := decode(l.text); inData && kind+l.path[0] == "Secretdata" || dropIn.MatchString(decoded) {
			leaves[i].text = decoded
		}
		if inData || dropIn.MatchString(leaves[i].text) {
			if err := r.text(l.place, leaves[i].text); err != nil {
				return err
			}
		}
		if r.taken > taken {
			leaves[i] = leaf{}
		}
	}
	return r.collect(kind, leaves)
}

// flatten appends the leaves of a node at a path. An object within another one, as in a List, is a document of its own.
func (r *reader) flatten(leaves *[]leaf, place string, at []string, n *yaml.Node, line int) error {
	n = cmp.Or(n.Alias, n)
	if r.left -= len(n.Value) + nodeSize; r.left < 0 || len(at) > maxDepth {
		return errSize
	}
	l := leaf{path: at, text: n.Value, place: cmp.Or(place, fmt.Sprintf("line %d", line))}
	switch n.Kind { //nolint:exhaustive // all that there are
	case yaml.ScalarNode:
		if n.Tag != "!!null" {
			*leaves = append(*leaves, l)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			path, line := at, line
			if name := child(item, "name", &yaml.Node{}).Value; name != "" {
				item, path, line = child(item, "value", item), append(slices.Clip(at), name), item.Line
			}
			if err := r.flatten(leaves, place, path, item, line); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		if len(at) > 0 && child(n, "kind", nil) != nil && child(n, "apiVersion", nil) != nil {
			return r.document(place, n)
		}
		l.problem, l.switches = "is not here as a text; write its value", true
		first := len(*leaves)
		*leaves = append(*leaves, l)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, path, value := n.Content[i], at, strings.ToLower(n.Content[i+1].Value)
			if value == "true" {
				l.text += key.Value + "\n"
			}
			l.switches = l.switches && (value == "true" || value == "false")
			if key.Tag != "!!merge" {
				path = append(slices.Clip(at), key.Value)
			}
			if err := r.flatten(leaves, place, path, n.Content[i+1], key.Line); err != nil {
				return err
			}
		}
		(*leaves)[first] = l
	}
	return nil
}
