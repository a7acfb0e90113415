package foreign

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
	kubeyaml "sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// maxSize bounds the bytes of the texts that are read, with texts within texts, each use of an alias, and nodeSize for
// each value. maxDepth bounds the keys of a path.
const (
	maxSize  = 16 << 20
	nodeSize = 64
	maxDepth = 100
)

var (
	errSize = errors.New("larger than 16 MiB, aliases included, or deeper than 100 keys; give the part with the settings")
	// serviceSection begins the settings of a drop-in.
	serviceSection = regexp.MustCompile(`(?m)^\[Service\][ \t\r]*$`)
	// shellFile is an assignment in a shell file, variable one anywhere.
	shellFile = regexp.MustCompile(`(?m)^((export|declare -x)[ \t]+)?(?i:https?|no)_(?i:proxy)=`)
	variable  = regexp.MustCompile(`(?i)(https?|no)_proxy=`)
	// variableFile is the path of a file with such assignments, valueKey the key of a ConfigMap with YAML.
	variableFile = regexp.MustCompile(`(?i)(/|-|_|http)proxy[^/]*\.(conf|env|sh)$|/environment$`)
	valueKey     = regexp.MustCompile(`^values?$|\.ya?ml$`)
	// documentEnd ends a document. The parser of YAML wants three dashes after it.
	documentEnd = regexp.MustCompile(`(?m)^\.\.\.[ \t\r]*$`)
	lineNumber  = regexp.MustCompile(`line [0-9]+`)
)

// leaf is a text or a mapping, and its path. Indexes of lists are not in the path.
type leaf struct {
	path    []string
	text    string
	mapping bool
}

// text reads a text: a drop-in, a shell file, or documents of YAML or JSON. Errors quote nothing of it. Without
// required, it may have another form.
func (r *reader) text(place, text string, required bool) error {
	assigned := serviceSection.MatchString(text)
	if assigned || shellFile.MatchString(text) {
		if r.left -= len(text); r.left < 0 {
			return errSize
		} else if !required && !variable.MatchString(text) {
			return nil
		}
		place = cmp.Or(place, map[bool]string{true: "the drop-in", false: "the shell file"}[assigned])
		vars, err := map[bool]func(string) ([]envfile.Var, error){true: dropIn, false: shell}[assigned](text)
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		return r.variables(place, vars)
	}
	nodes, err := parse([]byte(text))
	if err != nil && json.Valid([]byte(text)) { // the parser of YAML does not take all white space of JSON
		if converted, jsonErr := kubeyaml.JSONToYAML([]byte(text)); jsonErr == nil {
			nodes, err = parse(converted)
		}
	}
	if err != nil && required {
		return fmt.Errorf("%s: neither YAML nor JSON %s", placeOf(place), lineNumber.FindString(err.Error()))
	}
	for i := 0; i < len(nodes) && err == nil; i++ {
		if err := r.document(place, nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

func parse(text []byte) (nodes []*yaml.Node, err error) {
	for decoder := yaml.NewDecoder(bytes.NewReader(documentEnd.ReplaceAll(text, []byte("---")))); ; {
		var n yaml.Node
		if err := decoder.Decode(&n); errors.Is(err, io.EOF) {
			return nodes, nil
		} else if err != nil {
			return nil, err //nolint:wrapcheck // the caller takes its line only
		}
		nodes = append(nodes, n.Content...)
	}
}

// variables reads environment variables.
func (r *reader) variables(place string, vars []envfile.Var) error {
	leaves := make([]leaf, 0, len(vars))
	for _, v := range vars {
		leaves = append(leaves, leaf{path: []string{v.Name}, text: v.Value})
	}
	return r.settings(place, "", leaves, len(r.found))
}

func decode(text string) (string, error) {
	decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	return string(decoded), err //nolint:wrapcheck // callers say which text it is
}

// get returns the value at a path of keys, an empty one if there is none.
func get(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		i := 0
		for n.Kind == yaml.MappingNode && i < len(n.Content) && n.Content[i].Value != key {
			i += 2
		}
		if n.Kind != yaml.MappingNode || i >= len(n.Content) {
			return &yaml.Node{}
		}
		if n = n.Content[i+1]; n.Kind == yaml.AliasNode {
			n = n.Alias
		}
	}
	return n
}

// document reads one document. A List is one for each item.
func (r *reader) document(place string, n *yaml.Node) error {
	kind, before := get(n, "kind").Value, len(r.found)
	if group, _, found := strings.Cut(get(n, "apiVersion").Value, "/"); found {
		kind += "." + group
	}
	if kind == "List" {
		for _, item := range get(n, "items").Content {
			if err := r.document(place, item); err != nil {
				return err
			}
		}
		return nil
	}
	var leaves []leaf
	if err := r.flatten(&leaves, place, nil, n, false); err != nil {
		return err
	}
	if kind != "" { // the status of an object is no setting
		leaves = slices.DeleteFunc(leaves, func(l leaf) bool { return len(l.path) > 0 && l.path[0] == "status" })
	}
	for i, l := range leaves {
		inData := len(l.path) == 2 && !l.mapping && (l.path[0] == "data" || l.path[0] == "stringData")
		if !inData || kind != "Secret" && kind != "ConfigMap" {
			continue
		}
		text := l.text
		if decoded, err := decode(text); kind == "Secret" && l.path[0] == "data" {
			if text = decoded; err != nil {
				return fmt.Errorf("%s is not base64", placeOf(place, l.path...))
			}
		}
		leaves[i].text = text
		if l.path[1] == "ca-bundle.crt" {
			r.bundles[get(n, "metadata", "name").Value] = text
		}
		if err := r.text(placeOf(place, l.path...), text, valueKey.MatchString(l.path[1])); err != nil {
			return err
		}
	}
	return r.settings(place, kind, leaves, before)
}

// flatten appends the texts and mappings below a node. The name of a named mapping, an item of a list, is in the path.
func (r *reader) flatten(leaves *[]leaf, place string, at []string, n *yaml.Node, named bool) error {
	if r.left -= len(n.Value) + nodeSize; r.left < 0 || len(at) > maxDepth {
		return errSize
	}
	under := func(key string) []string { return append(slices.Clip(at), key) }
	switch n.Kind { //nolint:exhaustive // all there are
	case yaml.AliasNode:
		return r.flatten(leaves, place, at, n.Alias, named)
	case yaml.ScalarNode:
		if n.Tag != "!!null" {
			*leaves = append(*leaves, leaf{path: at, text: n.Value})
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if item.Kind == yaml.AliasNode {
				item = item.Alias
			}
			below := at
			if name := get(item, "name").Value; name != "" {
				below = under(name)
			}
			if file := get(item, "path").Value; variableFile.MatchString(file) {
				if err := r.file(placeOf(place, under(file)...), item); err != nil {
					return err
				}
			} else if err := r.flatten(leaves, place, below, item, len(below) > len(at)); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		if !named || get(n, "value").Kind == 0 {
			*leaves = append(*leaves, leaf{path: at, mapping: true})
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, below := n.Content[i], at
			if seen[key.Value] {
				return fmt.Errorf("%s: the key at line %d occurs twice in its mapping", placeOf(place), key.Line)
			}
			if seen[key.Value] = true; named && key.Value == "name" && len(n.Content) > 2 {
				continue
			}
			if key.Tag != "!!merge" && (!named || key.Value != "value") {
				below = under(key.Value)
			}
			if err := r.flatten(leaves, place, below, n.Content[i+1], false); err != nil {
				return err
			}
		}
	}
	return nil
}

// file reads a file with variables among the files of a bootstrap spec.
func (r *reader) file(place string, n *yaml.Node) error {
	text, encoding := get(n, "content").Value, get(n, "encoding").Value
	decoded, err := decode(text)
	if encoding == "base64" {
		text = decoded
	}
	if text == "" || encoding != "" && (encoding != "base64" || err != nil) {
		secret := get(n, "contentFrom", "secret")
		return fmt.Errorf("%s: the content is not in it as text or base64; read key %s of Secret %s, or write it as text",
			place, placeOf("", get(secret, "key").Value), placeOf("", get(secret, "name").Value))
	}
	return r.text(place, text, false)
}
