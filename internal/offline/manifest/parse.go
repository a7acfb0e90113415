package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"
	k8syaml "sigs.k8s.io/yaml"
)

// tree is one parsed document: its source, the nodes with the places of everything, and its value.
type tree struct {
	text
	nodes  *yaml.Node     // see root
	value  map[string]any // nil in a document without content
	masked bool           // see mask; nodes hold masked text, value does not
	isJSON bool           // the content is a JSON object
	marked bool           // a JSON object stands behind a "---"
	defect *syntaxError   // the first one despite which the document can be read
	// aliased is the size of what aliases stand for, see maxAliased.
	aliased int
	// readable is the text for the parser: the source with directives hidden and, perhaps, variables masked.
	readable string
}

// root returns the node of the content, nil in a document without.
func (t *tree) root() *yaml.Node {
	if t.nodes == nil && t.value != nil {
		t.nodes, _ = parseNode(t.readable) // As before, without error.
	}
	return t.nodes
}

// forget frees the nodes, which take many times the memory of the text, until they are needed again.
func (t *tree) forget() { t.nodes = nil }

// syntaxError is a cause with the line of the document at which it was found, 0 if that is not known.
type syntaxError struct {
	line  int
	cause string
}

// errAliases reports aliases that stand for too much.
var errAliases = errors.New("aliases stand for more than 16 MiB of values; write out what they stand for")

// Error returns the cause alone; the line is relative to the document and is translated by the caller.
func (e *syntaxError) Error() string { return e.cause }

// maxAliased bounds what the aliases of one stream, or of one document, may stand for: the bytes of all scalars, and
// 16 for each value.
const maxAliased = 16 << 20

// aliased returns the size of what the aliases below a node stand for together, in the measure of maxAliased. It stops
// soon after that limit. The sizes are those of nodes with anchors so far; they are 0 for a node that contains itself.
func aliased(n *yaml.Node, sizes map[*yaml.Node]int) int {
	total := 0
	if n.Kind == yaml.AliasNode {
		total = expanded(n, sizes)
	}
	for _, child := range n.Content {
		total = min(total+aliased(child, sizes), maxAliased+1)
	}
	return total
}

// expanded returns the size of a node with all aliases in it written out.
func expanded(n *yaml.Node, sizes map[*yaml.Node]int) int {
	if n.Kind == yaml.AliasNode {
		if size, known := sizes[n.Alias]; known {
			return size
		}
		sizes[n.Alias] = 0
		sizes[n.Alias] = expanded(n.Alias, sizes)
		return sizes[n.Alias]
	}
	total := len(n.Value) + 16
	for _, child := range n.Content {
		total = min(total+expanded(child, sizes), maxAliased+1)
	}
	return total
}

// parse reads the source of one document. Its nodes come from the parser of kustomize, its value from sigs.k8s.io/yaml
// and so from the parser of kubectl; the two differ, for example about an unquoted yes.
func parse(src string) (*tree, error) {
	t := &tree{text: newText(src)}
	if body := jsonBody(src); body != "" {
		return t, t.parseJSON(body)
	}
	if err := checkCharacters(t.text); err != nil {
		return nil, err
	}
	readable := hideDirectives(t.text)
	err := t.understand(readable)
	if err == nil {
		return t, nil
	}
	hidden, line := hideTemplates(t.text, readable)
	other := &tree{text: t.text}
	if line == 0 || other.understand(hidden) != nil {
		return nil, err
	}
	other.defect = &syntaxError{line, "a line contains only a template; resolve it first, " +
		"with clusterctl generate cluster or the template's own tool"}
	return other, nil
}

// understand sets everything from a readable text.
func (t *tree) understand(readable string) error {
	root, err := parseNode(readable)
	if err != nil {
		masked, ok := mask(readable)
		if !ok {
			return err
		}
		var maskedErr error
		if root, maskedErr = parseNode(masked); maskedErr != nil {
			return err
		}
		readable, t.masked = masked, true
	}
	t.readable = readable
	if root == nil {
		return nil
	}
	if t.aliased = aliased(root, map[*yaml.Node]int{}); t.aliased > maxAliased {
		return errAliases
	}
	if t.defect, err = checkKeys(root); err != nil {
		return err
	}
	switch root.Kind {
	case yaml.MappingNode:
	case yaml.SequenceNode:
		t.defect = listDefect(root)
		return nil
	default:
		return &syntaxError{line: root.Line, cause: "the document is not a mapping of keys to values"}
	}
	t.nodes = root
	t.value, err = decode(readable, t.masked)
	if err != nil {
		return &syntaxError{line: root.Line, cause: err.Error()}
	}
	return nil
}

// template is a line with nothing but a template, of clusterctl or Go.
var template = regexp.MustCompile(`^\s*(\$\{.*\}|\{\{.*\}\})\s*$`)

// hideTemplates turns lines with nothing but a template into comments, and returns the first of them, 0 if there is
// none.
func hideTemplates(t text, readable string) (hidden string, first int) {
	if len(readable) != len(t.src) {
		return readable, 0
	}
	b := []byte(readable)
	for line := 1; line <= t.lines(); line++ {
		if content := t.line(line); template.MatchString(content) {
			b[t.start(line)+len(content)-len(strings.TrimLeft(content, " \t"))] = '#'
			if first == 0 {
				first = line
			}
		}
	}
	return string(b), first
}

// listDefect reports a document that is a list.
func listDefect(root *yaml.Node) *syntaxError {
	return &syntaxError{root.Line, "the document is a list, not an object"}
}

// parseJSON is parse for a document that holds a JSON object or list.
func (t *tree) parseJSON(body string) error {
	before := strings.TrimSuffix(t.src, body)
	readable, half := readJSON(body)
	if half >= 0 {
		line := strings.Count(t.src[:len(before)+half], "\n") + 1
		return &syntaxError{line, "a string holds half of a surrogate pair (\\ud800 to \\udfff); write the whole character"}
	}
	t.readable, t.isJSON, t.marked = before+readable, true, strings.TrimSpace(before) != ""
	var err error
	if t.nodes, err = parseNode(t.readable); err != nil {
		return err
	}
	if t.nodes.Kind == yaml.SequenceNode {
		t.defect, t.nodes = listDefect(t.nodes), nil
		return nil
	}
	t.value = decodeJSON(body)
	t.defect, err = checkKeys(t.nodes)
	return err
}

// parseNode returns the root node of a source that holds one document, nil if that has no content.
func parseNode(src string) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(strings.NewReader(src))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil //nolint:nilnil // No content is a legal document.
	case err != nil:
		return nil, newSyntaxError(err)
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		return nil, &syntaxError{line: more.Line, cause: "a second document without a separator"}
	case !errors.Is(err, io.EOF):
		return nil, newSyntaxError(err)
	}
	if len(document.Content) != 1 || document.Content[0].ShortTag() == "!!null" {
		return nil, nil //nolint:nilnil // No content is a legal document.
	}
	return document.Content[0], nil
}

// newSyntaxError extracts the line from an error of the YAML parser. The problems that this parser reports are constant
// texts, sometimes with the name of an anchor, and never quote a value.
func newSyntaxError(err error) *syntaxError {
	cause := strings.TrimPrefix(err.Error(), "yaml: ")
	rest, ok := strings.CutPrefix(cause, "line ")
	if !ok {
		return &syntaxError{cause: cause}
	}
	number, problem, _ := strings.Cut(rest, ": ")
	line, convErr := strconv.Atoi(number)
	if convErr != nil {
		return &syntaxError{cause: cause}
	}
	// The parser counts from 0 in errors about the collection in which something is missing.
	if strings.HasPrefix(problem, "did not find expected") {
		line++
	}
	return &syntaxError{line: line, cause: problem}
}

// checkCharacters reports the first character that YAML does not allow (YAML 1.2.2, section 5.1).
func checkCharacters(t text) error {
	for line := 1; line <= t.lines(); line++ {
		content := t.line(line)
		if !utf8.ValidString(content) {
			return &syntaxError{line: line, cause: "invalid UTF-8"}
		}
		switch {
		case strings.ContainsFunc(content, isControl):
			return &syntaxError{line: line, cause: "control characters are not allowed"}
		case strings.ContainsFunc(content, isBreak):
			return &syntaxError{line: line, cause: "a line break that is not one for every reader of YAML (NEL, LS or PS); " +
				"write it as an escape in double quotes"}
		case strings.HasPrefix(content, bom):
			return &syntaxError{line: line, cause: "a byte order mark behind the beginning of a document; remove it"}
		}
	}
	return nil
}

// isControl reports whether YAML allows a character only as an escape.
func isControl(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r >= 0x7F && r <= 0x9F && r != 0x85 ||
		r == 0xFFFE || r == 0xFFFF
}

// isBreak reports whether a character is a line break for some readers of YAML.
func isBreak(r rune) bool { return r == 0x85 || r == 0x2028 || r == 0x2029 }

// hideDirectives turns the %YAML lines before a document into comments: the parser knows only version 1.1, while files
// with 1.2 are common and do not differ.
func hideDirectives(t text) string {
	src := t.src
	for line := 1; line <= t.lines(); line++ {
		content := t.line(line)
		if strings.HasPrefix(content, "%YAML") {
			src = src[:t.start(line)] + "#" + src[t.start(line)+1:]
		} else if !isBlank(content) && !isComment(content) && !strings.HasPrefix(content, "%") {
			break
		}
	}
	return src
}

// checkKeys returns the first key that occurs twice in one mapping. Its error is a key that is itself a mapping or
// sequence, as in an unresolved {{ template }}.
func checkKeys(n *yaml.Node) (twice *syntaxError, err error) {
	if n.Kind == yaml.MappingNode {
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			name, ok := keyName(key)
			if !ok {
				return nil, &syntaxError{line: key.Line, cause: "a mapping key is not a string, is this an unresolved template?"}
			}
			if seen[name] && twice == nil {
				twice = &syntaxError{key.Line, fmt.Sprintf("key %q occurs twice in one mapping", unmask(name))}
			}
			seen[name] = true
		}
	}
	for _, child := range n.Content {
		below, err := checkKeys(child)
		if err != nil {
			return nil, err
		}
		if twice == nil {
			twice = below
		}
	}
	return twice, nil
}

// keyName returns the name that a key has in JSON, where 010 is "8" and yes is "true".
func keyName(key *yaml.Node) (string, bool) {
	if key.Kind == yaml.AliasNode {
		key = key.Alias
	}
	if key.Kind != yaml.ScalarNode {
		return "", false
	}
	if key.ShortTag() == "!!merge" {
		return key.Value, true
	}
	if key.Style&yaml.TaggedStyle == 0 && key.ShortTag() == "!!str" {
		switch strings.ToLower(key.Value) {
		case "y", "n", "yes", "no", "on", "off": // Booleans of YAML 1.1.
		default:
			return key.Value, true
		}
	}
	source := key.Value
	if key.Style != 0 {
		source = strconv.QuoteToASCII(source)
	}
	if key.Style&yaml.TaggedStyle != 0 {
		source = key.Tag + " " + source
	}
	object, err := decode("? "+source+"\n: 0\n", false)
	for name := range object {
		return name, err == nil
	}
	return "", false
}

// decode returns the JSON-compatible value of a document, numbers as int64 where they fit and float64 otherwise.
func decode(src string, masked bool) (map[string]any, error) {
	data, err := k8syaml.YAMLToJSON([]byte(src))
	if err != nil {
		// The cause may quote a value and is left out for that.
		return nil, errors.New("the value cannot be converted to JSON")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, errors.New("the value cannot be converted to JSON")
	}
	object, ok := normalize(value, masked).(map[string]any)
	if !ok {
		return nil, errors.New("the document is not a mapping of keys to values")
	}
	return object, nil
}

// normalize gives numbers their Go type and, in a masked document, strings their real text.
func normalize(value any, masked bool) any {
	switch v := value.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return v
	case string:
		if masked {
			return unmask(v)
		}
	case []any:
		for i := range v {
			v[i] = normalize(v[i], masked)
		}
	case map[string]any:
		object := make(map[string]any, len(v))
		for key, field := range v {
			if masked {
				key = unmask(key)
			}
			object[key] = normalize(field, masked)
		}
		return object
	}
	return value
}

// maskBase is the first of 128 private-use characters that stand for the ASCII characters of a masked variable.
const maskBase = '\uE000'

// mask hides what stands between the braces of clusterctl variables, as in [${CIDR:=["10.0.0.0/8"]}], from the YAML
// parser, character by character so that lines and columns stay. It reports false if there is nothing to hide or if the
// text already uses the private characters.
func mask(src string) (string, bool) {
	if !strings.Contains(src, "${") || strings.ContainsFunc(src, isMasked) {
		return "", false
	}
	var b strings.Builder
	depth := 0
	for i, r := range src {
		switch {
		case depth == 0 && r == '{' && i > 0 && src[i-1] == '$', depth > 0 && r == '{':
			depth++
			b.WriteRune(maskBase + r)
		case r == '\n' || r == '\r':
			depth = 0 // No variable extends over a line.
			b.WriteRune(r)
		case depth > 0:
			if r == '}' {
				depth--
			}
			if r < utf8.RuneSelf {
				r += maskBase
			}
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String(), true
}

// isMasked reports whether a character is one that mask writes.
func isMasked(r rune) bool { return r >= maskBase && r < maskBase+utf8.RuneSelf }

// unmask undoes mask.
func unmask(s string) string {
	return strings.Map(func(r rune) rune {
		if isMasked(r) {
			return r - maskBase
		}
		return r
	}, s)
}
