package manifest

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// frame is one step from a node to a node below it.
type frame struct {
	node *yaml.Node
	at   int // index into node.Content, of the key in a mapping and of the item in a sequence
}

// site is the place of an edit in the nodes of a document, as far as it exists.
type site struct {
	frames []frame    // from the root of the document
	base   int        // number of frames above the root of the object
	value  *yaml.Node // what the last frame leads to
}

// edit returns the tree with an edit made whose outcome is already known. It tries the ways to write the edit, the one
// that touches the fewest lines first, and takes the first that parses and has the wanted value.
func (t *tree) edit(e Edit, item, pruned int, want map[string]any) (*tree, error) {
	if reflect.DeepEqual(t.value, want) {
		return t, nil
	}
	if s, ok := t.locate(e.Path, item); ok {
		for _, quoted := range []bool{false, true} {
			if src, ok := t.splice(e, s, pruned, quoted); ok {
				if edited, err := t.with(src, want); err == nil {
					return edited, nil
				}
			}
		}
	}
	if edited, ok := t.encode(e, item, pruned, want); ok {
		return edited, nil
	}
	return nil, errors.New("the place cannot be edited without changing another one, does it use an anchor or a merge key?")
}

// with parses an edited source and returns it if it is one document of the wanted value.
func (t *tree) with(src string, want map[string]any) (*tree, error) {
	if len(split(src)) > 1 {
		return nil, errors.New("the edit would split the document")
	}
	edited, err := parse(src)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(edited.value, want) {
		return nil, errors.New("the edit would change another value")
	}
	return edited, nil
}

// locate follows a path. It gives up at aliases and merge keys, whose text stands elsewhere.
func (t *tree) locate(path []string, item int) (site, bool) {
	s := site{value: t.root}
	if item >= 0 {
		if !s.enter("items") || s.value.Kind != yaml.SequenceNode || item >= len(s.value.Content) {
			return s, false
		}
		s.frames = append(s.frames, frame{s.value, item})
		s.value = s.value.Content[item]
		s.base = len(s.frames)
	}
	for _, key := range path {
		if s.value.Kind != yaml.MappingNode || !s.enter(key) {
			break
		}
	}
	return s, s.value.Kind != yaml.AliasNode && (s.value.Kind != yaml.MappingNode || len(s.frames)-s.base == len(path) || keyIndex(s.value, "<<") < 0)
}

// enter goes down to the value of a key.
func (s *site) enter(key string) bool {
	at := keyIndex(s.value, key)
	if at < 0 {
		return false
	}
	s.frames = append(s.frames, frame{s.value, at})
	s.value = s.value.Content[at+1]
	return true
}

// depth returns how many elements of the path of the edit exist.
func (s site) depth() int { return len(s.frames) - s.base }

// inFlow reports whether the last frame lies in a flow mapping or flow sequence.
func (s site) inFlow() bool {
	for _, f := range s.frames {
		if f.node.Style&yaml.FlowStyle != 0 {
			return true
		}
	}
	return false
}

// keyIndex returns the index of a key in the content of a mapping, -1 if it is absent.
func keyIndex(n *yaml.Node, key string) int {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Kind == yaml.ScalarNode && unmask(n.Content[i].Value) == key {
			return i
		}
	}
	return -1
}

// splice writes an edit into the text at one place. What it returns is a proposal that is still to be verified. If quoted
// is set, strings of several lines are written in double quotes instead of as block scalars.
func (t *tree) splice(e Edit, s site, pruned int, quoted bool) (string, bool) {
	r := t.renderer(s)
	r.quoted = quoted
	if pruned > 0 {
		last := s.base + pruned - 1
		if last >= len(s.frames) {
			return "", false
		}
		if s.frames[last].node.Style&yaml.FlowStyle != 0 {
			return t.flowRemove(s.frames[last], 2)
		}
		return t.removeEntry(s.frames[:last+1])
	}
	if s.depth() < len(e.Path) || e.Op == Insert && len(s.value.Content) == 0 {
		return t.create(e, s, r)
	}
	if e.Op == SetScalar {
		return t.setScalar(e, s, r)
	}
	at := frame{s.value, e.Index}
	if s.inFlow() || s.value.Style&yaml.FlowStyle != 0 {
		switch e.Op {
		case Remove:
			return t.flowRemove(at, 1)
		case Insert:
			return t.flowInsert(at, 1, "", e.Value)
		default:
			return t.flowReplace(s.value.Content[e.Index], e.Value)
		}
	}
	return t.spliceItem(e, append(s.frames, at), r)
}

// create adds the first key of the path that does not exist, or fills a list or mapping that is empty or null.
func (t *tree) create(e Edit, s site, r renderer) (string, bool) {
	value := e.Value
	if e.Op == Insert {
		value = []any{e.Value}
	}
	missing := e.Path[s.depth():]
	for i := len(missing) - 1; i > 0; i-- {
		value = Map{{missing[i], value}}
	}
	if s.value.Kind == yaml.MappingNode && len(s.value.Content) > 0 {
		if s.inFlow() || s.value.Style&yaml.FlowStyle != 0 {
			return t.flowInsert(frame{s.value, len(s.value.Content)}, 2, missing[0], value)
		}
		column := s.value.Content[0].Column - 1
		bound := t.bound(s.frames)
		line := t.behindComments(t.lastLine(s.value, column, bound)+1, bound, column)
		return t.insert(line, r.entry(strings.Repeat(" ", column)+scalar(missing[0])+":", column, value)), true
	}
	if len(missing) > 0 {
		value = Map{{missing[0], value}}
	}
	if s.inFlow() {
		return t.flowReplace(s.value, value)
	}
	return t.fill(s, value, r)
}

// fill writes a value below a key whose value is empty or null. A comment behind the key stays there.
func (t *tree) fill(s site, value any, r renderer) (string, bool) {
	if len(s.frames) == 0 {
		return "", false
	}
	f := s.frames[len(s.frames)-1]
	key := f.node.Content[f.at]
	before, after, ok := t.around(s.value)
	if !ok || f.node.Kind != yaml.MappingNode || s.value.Line != key.Line {
		return "", false
	}
	lines := append([]string{before + after}, r.below(key.Column-1, value)...)
	return t.replace(key.Line, key.Line, lines), true
}

// around returns what stands on the line of a value before it, up to the colon, and behind it, if the value is written on
// one line and only a comment follows it.
func (t *tree) around(value *yaml.Node) (before, after string, ok bool) {
	from, to, ok := t.token(value)
	if !ok || to > t.end(value.Line) {
		return "", "", false
	}
	before = strings.TrimRight(t.src[t.start(value.Line):from], " \t")
	after = t.src[to:t.end(value.Line)]
	if isBlank(after) {
		after = ""
	}
	return before, after, strings.HasSuffix(before, ":") && (after == "" || isComment(after))
}

// setScalar exchanges a scalar for another one.
func (t *tree) setScalar(e Edit, s site, r renderer) (string, bool) {
	if s.inFlow() {
		return t.flowReplace(s.value, e.Value)
	}
	f := s.frames[len(s.frames)-1]
	key := f.node.Content[f.at]
	column := key.Column - 1
	lines := r.entry("", column, e.Value)
	before, after, ok := t.around(s.value)
	if ok && s.value.Line == key.Line {
		lines[0] = before + lines[0] + after
		return t.replace(key.Line, key.Line, lines), true
	}
	head, _, ok := t.head(key)
	if !ok {
		return "", false
	}
	lines[0] = head + lines[0]
	return t.replace(key.Line, t.lastLine(s.value, column, t.bound(s.frames)), lines), true
}

// head splits the line of a key behind the colon.
func (t *tree) head(key *yaml.Node) (head, rest string, ok bool) {
	_, to, ok := t.token(key)
	if !ok || to > t.end(key.Line) {
		return "", "", false
	}
	colon := strings.IndexByte(t.src[to:t.end(key.Line)], ':')
	if colon < 0 {
		return "", "", false
	}
	return t.src[t.start(key.Line) : to+colon+1], t.src[to+colon+1 : t.end(key.Line)], true
}

// removeEntry removes the key of the last frame with its value. A mapping that it empties becomes {}.
func (t *tree) removeEntry(frames []frame) (string, bool) {
	f := frames[len(frames)-1]
	key := f.node.Content[f.at]
	last := t.lastLine(f.node.Content[f.at+1], key.Column-1, t.bound(frames))
	if !t.begins(key) {
		return "", false
	}
	src := t.remove(key.Line, last)
	if len(f.node.Content) > 2 {
		return src, true
	}
	if len(frames) < 2 || frames[len(frames)-2].node.Kind != yaml.MappingNode {
		return "", false
	}
	parent := frames[len(frames)-2]
	head, rest, ok := t.head(parent.node.Content[parent.at])
	at := t.start(parent.node.Content[parent.at].Line)
	return src[:at] + head + " {}" + rest + src[at+len(head)+len(rest):], ok
}

// begins reports whether only blanks stand before a node on its line.
func (t *tree) begins(n *yaml.Node) bool {
	at, ok := t.offset(n.Line, n.Column)
	return ok && isBlank(t.src[t.start(n.Line):at])
}

// spliceItem inserts, removes or replaces the item of the last frame, in a block sequence that has items.
func (t *tree) spliceItem(e Edit, frames []frame, r renderer) (string, bool) {
	parents, list := frames[:len(frames)-1], frames[len(frames)-1].node
	column := list.Column - 1
	if list.Kind != yaml.SequenceNode || list.Anchor != "" || list.Style&yaml.TaggedStyle != 0 {
		return "", false
	}
	if e.Op == Insert && e.Index == len(list.Content) {
		bound := t.bound(parents)
		line := t.behindComments(t.lastLine(list, column, bound)+1, bound, column)
		return t.insert(line, r.item(column, e.Value)), true
	}
	dash := t.dashLine(list, e.Index)
	if dash == 0 {
		return "", false
	}
	if e.Op != Insert {
		last := t.lastLine(list.Content[e.Index], column, t.bound(frames))
		if e.Op == Remove {
			return t.remove(dash, last), true
		}
		return t.replace(dash, last, r.item(column, e.Value)), true
	}
	first := parents[len(parents)-1].node.Content[parents[len(parents)-1].at].Line + 1
	if e.Index > 0 {
		before := slices.Concat(parents, []frame{{list, e.Index - 1}})
		first = t.lastLine(list.Content[e.Index-1], column, t.bound(before)) + 1
	}
	for dash > first && isComment(t.line(dash-1)) && indent(t.line(dash-1)) <= column {
		dash--
	}
	return t.insert(dash, r.item(column, e.Value)), true
}
