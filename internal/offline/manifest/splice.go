package manifest

import (
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
	value  *yaml.Node // of the last frame
}

// locate follows a path. It gives up at aliases and merge keys, whose text is elsewhere.
func (t *tree) locate(path []string, item int) (site, bool) {
	s := site{value: t.root()}
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
	return s, s.value.Kind != yaml.AliasNode && (s.value.Kind != yaml.MappingNode || len(s.frames)-s.base == len(path) ||
		keyIndex(s.value, "<<") < 0)
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

// writer collects the text changes for the edits of an object. They are proposals that are verified later.
type writer struct {
	*tree
	quoted  bool // see renderer
	changes []splice
	added   []*addition
	removed []*removal
}

// addition is text that is added to a mapping, or replaces an empty or null value.
type addition struct {
	site

	fields Map // nil if value is a list
	value  any
}

// removal are entries that are removed from a mapping.
type removal struct {
	parents []frame
	node    *yaml.Node
	entries []int // indexes of their keys in the content of the node, in order
}

// splices returns the text changes for edits of one object. It reports false if it does not know how to write them.
func (t *tree) splices(c Change, want map[string]any, quoted bool) ([]splice, bool) {
	before, after := c.Object.value(t.value), c.Object.value(want)
	leaves, ok := compile(c.Edits, before)
	w := &writer{tree: t, quoted: quoted}
	for _, l := range leaves {
		ok = ok && (unchanged(before, after, l.path) || w.leaf(l, c.Object.item, after))
	}
	for _, r := range w.removed {
		ok = ok && w.remove(r)
	}
	for _, a := range w.added {
		ok = ok && w.add(a)
	}
	return w.changes, ok
}

// leaf collects the changes at one path.
func (w *writer) leaf(l *leaf, item int, after map[string]any) bool {
	s, ok := w.locate(l.path, item)
	if !ok {
		return false
	}
	gone := 1 // number of elements of the path to the outermost removed key
	for gone <= len(l.path) {
		if _, stays := lookupValue(after, l.path[:gone]); !stays {
			break
		}
		gone++
	}
	switch {
	case gone <= len(l.path):
		if s.depth() < gone {
			return false
		}
		w.drop(s.frames[:s.base+gone])
	case !l.list && s.depth() == len(l.path):
		return w.set(s, l.value)
	case !l.list:
		w.create(s, l.path[s.depth():], l.value)
	case s.depth() < len(l.path) || len(s.value.Content) == 0:
		w.create(s, l.path[s.depth():], values(l.items))
	case s.inFlow() || s.value.Style&yaml.FlowStyle != 0:
		return w.flowList(s.value, l.items)
	default:
		return w.blockList(s, l.items)
	}
	return true
}

// change notes one change.
func (w *writer) change(c splice, ok bool) bool {
	w.changes = append(w.changes, c)
	return ok
}

// create records an addition at a place.
func (w *writer) create(s site, missing []string, value any) {
	at := slices.IndexFunc(w.added, func(a *addition) bool { return a.site.value == s.value })
	if at < 0 {
		at = len(w.added)
		w.added = append(w.added, &addition{site: s})
	}
	if len(missing) == 0 {
		w.added[at].value = value
	} else {
		w.added[at].fields = put(w.added[at].fields, missing, value)
	}
}

// add adds keys after those of a mapping, or fills a list or mapping that is empty or null.
func (w *writer) add(a *addition) bool {
	value := a.site.value
	r := w.renderer(a.site)
	switch {
	case value.Kind == yaml.MappingNode && len(value.Content) > 0 && (a.inFlow() || value.Style&yaml.FlowStyle != 0):
		return w.change(w.flowInsert(frame{value, len(value.Content)}, 2, a.fields))
	case value.Kind == yaml.MappingNode && len(value.Content) > 0:
		column := value.Content[0].Column - 1
		bound := w.bound(a.frames)
		line := w.behindComments(w.lastLine(value, column, bound)+1, bound, column)
		var lines []string
		for _, f := range a.fields {
			lines = append(lines, r.entry(pad(column)+scalar(f.Name)+":", column, f.Value)...)
		}
		return w.change(w.insert(line, lines, len(a.frames)), true)
	}
	if a.fields != nil {
		a.value = a.fields
	}
	if a.inFlow() {
		return w.change(w.flowReplace(value, a.value))
	}
	return w.fill(a.site, a.value, r)
}

// renderer returns the renderer for a place.
func (w *writer) renderer(s site) renderer {
	r := w.tree.renderer(s)
	r.quoted = w.quoted
	return r
}

// fill writes a value below a key whose value is empty or null. A comment after the key stays there.
func (w *writer) fill(s site, value any, r renderer) bool {
	if len(s.frames) == 0 {
		return false
	}
	f := s.frames[len(s.frames)-1]
	key := f.node.Content[f.at]
	before, after, ok := w.around(s.value)
	if !ok || f.node.Kind != yaml.MappingNode || s.value.Line != key.Line {
		return false
	}
	lines := append([]string{before + after}, r.below(key.Column-1, value)...)
	return w.change(w.replace(key.Line, key.Line, lines), true)
}

// set replaces a scalar.
func (w *writer) set(s site, value any) bool {
	if s.inFlow() {
		return w.change(w.flowReplace(s.value, value))
	}
	f := s.frames[len(s.frames)-1]
	key := f.node.Content[f.at]
	column := key.Column - 1
	lines := w.renderer(s).entry("", column, value)
	before, after, ok := w.around(s.value)
	if ok && s.value.Line == key.Line {
		lines[0] = before + lines[0] + after
		return w.change(w.replace(key.Line, key.Line, lines), true)
	}
	head, ok := w.head(key)
	if !ok {
		return false
	}
	lines[0] = head + lines[0]
	return w.change(w.replace(key.Line, w.lastLine(s.value, column, w.bound(s.frames)), lines), true)
}

// drop notes that the key of the last frame is removed with its value.
func (w *writer) drop(frames []frame) {
	last := frames[len(frames)-1]
	at := slices.IndexFunc(w.removed, func(r *removal) bool { return r.node == last.node })
	if at < 0 {
		at = len(w.removed)
		w.removed = append(w.removed, &removal{parents: frames[:len(frames)-1], node: last.node})
	}
	r := w.removed[at]
	if !slices.Contains(r.entries, last.at) {
		r.entries = append(r.entries, last.at)
		slices.Sort(r.entries)
	}
}

// remove removes keys of a mapping with their values. A mapping that becomes empty, and to which nothing is added,
// becomes {}.
func (w *writer) remove(r *removal) bool {
	if r.node.Style&yaml.FlowStyle != 0 {
		changes, ok := w.flowRemove(r.node, 2, r.entries)
		w.changes = append(w.changes, changes...)
		return ok
	}
	for _, at := range r.entries {
		key := r.node.Content[at]
		if !w.begins(key) {
			return false
		}
		bound := w.bound(append(slices.Clone(r.parents), frame{r.node, at}))
		w.changes = append(w.changes, w.text.remove(key.Line, w.lastLine(r.node.Content[at+1], key.Column-1, bound)))
	}
	grows := slices.ContainsFunc(w.added, func(a *addition) bool { return a.site.value == r.node })
	switch {
	case 2*len(r.entries) < len(r.node.Content) || grows:
		return true
	case len(r.parents) == 0:
		return w.change(w.insert(r.node.Line, []string{"{}"}, 0), true)
	case r.parents[len(r.parents)-1].node.Kind != yaml.MappingNode:
		return false
	}
	parent := r.parents[len(r.parents)-1]
	key := parent.node.Content[parent.at]
	head, ok := w.head(key)
	at := w.start(key.Line) + len(head)
	return w.change(splice{from: at, to: at, text: " {}"}, ok)
}

// around returns the text on the line of a value before it, up to the colon, and after it, if the value is written on
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

// head returns the line of a key up to and including the colon.
func (t *tree) head(key *yaml.Node) (head string, ok bool) {
	_, to, ok := t.token(key)
	if !ok || to > t.end(key.Line) {
		return "", false
	}
	colon := strings.IndexByte(t.src[to:t.end(key.Line)], ':')
	if colon < 0 {
		return "", false
	}
	return t.src[t.start(key.Line) : to+colon+1], true
}

// begins reports whether only spaces are before a node on its line.
func (t *tree) begins(n *yaml.Node) bool {
	at, ok := t.offset(n.Line, n.Column)
	return ok && isBlank(t.src[t.start(n.Line):at])
}

// blockList writes the items of a block sequence that has some before and after.
func (w *writer) blockList(s site, items []slot) bool {
	list, column, r := s.value, s.value.Column-1, w.renderer(s)
	if list.Kind != yaml.SequenceNode || list.Anchor != "" || list.Style&yaml.TaggedStyle != 0 {
		return false
	}
	at := func(i int) []frame { return append(slices.Clone(s.frames), frame{list, i}) }
	var fresh []string // inserted before the next item
	next := 0          // the item of the old list that comes next
	for _, item := range append(items, slot{at: len(list.Content)}) {
		for ; item.at > next; next++ { // those between are removed
			dash := w.dashLine(list, next)
			if dash == 0 {
				return false
			}
			w.changes = append(w.changes, w.text.remove(dash, w.lastLine(list.Content[next], column, w.bound(at(next)))))
		}
		if item.at < 0 {
			fresh = append(fresh, r.item(column, item.value)...)
			continue
		}
		next = item.at + 1
		if len(fresh) > 0 {
			line := w.above(s, item.at)
			if line == 0 {
				return false
			}
			w.changes = append(w.changes, w.insert(line, fresh, len(s.frames)))
			fresh = nil
		}
		if item.fresh {
			dash := w.dashLine(list, item.at)
			if dash == 0 {
				return false
			}
			last := w.lastLine(list.Content[item.at], column, w.bound(at(item.at)))
			w.changes = append(w.changes, w.replace(dash, last, r.item(column, item.value)))
		}
	}
	return true
}

// above returns the line before which an item is inserted before another one: that of its dash, or that of the first
// comment directly above it. For an item after the last one it is the line after the list and its comments. It is 0 if
// the dash is not the first thing on its line.
func (w *writer) above(s site, item int) int {
	list, column := s.value, s.value.Column-1
	if item == len(list.Content) {
		bound := w.bound(s.frames)
		return w.behindComments(w.lastLine(list, column, bound)+1, bound, column)
	}
	dash := w.dashLine(list, item)
	last := s.frames[len(s.frames)-1]
	first := last.node.Content[last.at].Line + 1
	if item > 0 {
		before := append(slices.Clone(s.frames), frame{list, item - 1})
		first = w.lastLine(list.Content[item-1], column, w.bound(before)) + 1
	}
	for dash > first && isComment(w.line(dash-1)) && indent(w.line(dash-1)) <= column {
		dash--
	}
	return dash
}

// flowList writes the items of a flow sequence that has some before and after.
func (w *writer) flowList(list *yaml.Node, items []slot) bool {
	if !slices.ContainsFunc(items, func(item slot) bool { return item.at >= 0 }) {
		return w.change(w.flowReplace(list, values(items)))
	}
	var fresh Map // inserted before the next item
	var removed []int
	next := 0
	for _, item := range append(items, slot{at: len(list.Content)}) {
		for ; item.at > next; next++ {
			removed = append(removed, next)
		}
		if item.at < 0 {
			fresh = append(fresh, Field{Value: item.value})
			continue
		}
		next = item.at + 1
		if len(fresh) > 0 && !w.change(w.flowInsert(frame{list, item.at}, 1, fresh)) {
			return false
		}
		fresh = nil
		if item.fresh && !w.change(w.flowReplace(list.Content[item.at], item.value)) {
			return false
		}
	}
	changes, ok := w.flowRemove(list, 1, removed)
	w.changes = append(w.changes, changes...)
	return ok || len(removed) == 0
}
