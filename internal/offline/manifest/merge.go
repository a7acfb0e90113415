package manifest

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// A library prints an edited document twice, without and with the edits, and without most values that no edit passes.
// Both prints have keys and items of the user's text, at whose lines all three are cut into pieces. A piece that is
// printed the same twice keeps its text. In another one, the difference of the prints is merged into the text. The
// result is parsed and its value compared, so that a wrong place or a wrong style of a piece is an error and never
// another value.

// piece is a part of a document: the lines from a key or item up to the next one.
type piece struct {
	line               int // of the text, from 1
	ours, base, theirs []string
	start              int  // of the key or item, -1 in the piece before the first one
	last               int  // of the last one in the piece
	gone               bool // its key or item is removed
	within             int  // of the outermost removed key or item around it, itself included
	fresh              bool // its value is replaced
}

// merger writes a text with edits.
type merger struct {
	*tree

	starts []start // in the text
	base   printed
	out    strings.Builder
}

// write returns the tree with changes made in its text, if the result has the wanted value.
func (t *tree) write(changes []Change, want map[string]any) (*tree, bool) {
	if reflect.DeepEqual(t.value, want) {
		return t, true
	}
	m := &merger{tree: t}
	pieces, ok := m.cut(changes)
	if !ok {
		return nil, false
	}
	line := 1
	for i, p := range pieces {
		inner := i+1 < len(pieces) && pieces[i+1].gone && pieces[i+1].within == p.within
		if !m.merge(p, inner) {
			return nil, false
		}
		line = p.line + len(p.ours)
	}
	m.keep(line, t.lines()+1)
	src := m.out.String()
	if !endsLine(t.src) { // A last line stays without a line break, unless it is that of a new block scalar.
		if edited, err := t.with(strings.TrimSuffix(src, t.eol()), want); err == nil {
			return edited, true
		}
	}
	edited, err := t.with(src, want)
	return edited, err == nil
}

// cut prints the document and cuts it into pieces, where a key or item begins a line of each text.
func (m *merger) cut(changes []Change) ([]piece, bool) {
	root, err := parseNode(m.readable)
	if err != nil {
		return nil, false
	}
	text := m.text
	if !m.isJSON {
		text = newText(m.readable)
	}
	look := m.look(text.places(root, root))
	uncomment(root)
	if m.aliased == 0 && changes[0].Object.item < 0 { // An alias needs its anchor.
		omit(root, changes[0].Edits, 0)
	}
	m.starts = text.places(root, root)
	base, ok := look.print(root)
	fresh := make(map[*yaml.Node]bool)
	if !ok || !changeNodes(root, changes, fresh) {
		return nil, false
	}
	theirs, ok := look.print(root)
	if !ok {
		return nil, false
	}
	m.base = base
	var ours []string
	for line := 1; line <= text.lines() && !isMarker(text.line(line), "..."); line++ {
		ours = append(ours, text.line(line))
	}
	type place struct{ ours, base, theirs int }
	pieces, at := []piece{{start: -1, last: -1}}, []place{{}}
	within := make([]int, len(m.starts))
	for i, s := range m.starts {
		before := at[len(at)-1]
		kept, stays := theirs.at[s.node]
		next := place{s.line, base.at[s.node].line, before.theirs}
		switch {
		case stays:
			next.theirs, within[i] = kept.line, -1
		case s.around >= 0 && within[s.around] >= 0:
			within[i] = within[s.around]
		default:
			within[i] = i
		}
		if next.ours > before.ours && next.base > before.base && (!stays || next.theirs > before.theirs) {
			at = append(at, next)
			pieces = append(pieces, piece{start: i, gone: !stays, within: within[i], fresh: fresh[s.node]})
		}
		pieces[len(pieces)-1].last = i
	}
	end := place{len(ours), len(base.lines), len(theirs.lines)}
	for i, from := range slices.Backward(at) {
		p := &pieces[i]
		from = place{max(from.ours-1, 0), max(from.base-1, 0), max(from.theirs-1, 0)}
		if p.gone {
			from.theirs = end.theirs
		}
		p.line, p.ours = from.ours+1, ours[from.ours:end.ours]
		p.base, p.theirs = base.lines[from.base:end.base], theirs.lines[from.theirs:end.theirs]
		end = from
	}
	return pieces, true
}

// merge writes a piece. New lines come behind those of the key or item, and behind the comments there that are indented
// deeper than the new lines. Other comments and empty lines stay, unless they are inside of what is removed.
func (m *merger) merge(p piece, inner bool) bool {
	own := len(p.ours) // lines of the key or item
	if p.start >= 0 {
		own -= max(0, quiet(p.ours)-quiet(p.base)) // The print has such lines only in values.
	}
	switch {
	case slices.Equal(p.base, p.theirs):
		own = 0
	case p.gone && inner:
		own = len(p.ours)
	case p.gone:
	case len(p.base) < len(p.theirs) && slices.Equal(p.base, p.theirs[:len(p.base)]):
		added := m.shift(p, p.theirs[len(p.base):])
		for own < len(p.ours) && isComment(p.ours[own]) && indent(p.ours[own]) > indent(added[0]) {
			own++
		}
		m.keep(p.line, p.line+own)
		m.add(added)
	default:
		merged, ok := mergeLines(m.shift(p, p.base), p.ours[:own], m.shift(p, p.theirs), p.fresh)
		if !ok {
			return false
		}
		m.add(merged)
	}
	m.keep(p.line+own, p.line+len(p.ours))
	return true
}

// quiet counts the empty lines and comments at the end of a piece.
func quiet(lines []string) int {
	n := len(lines)
	for n > 0 && (isBlank(lines[n-1]) || isComment(lines[n-1])) {
		n--
	}
	return len(lines) - n
}

// mergeLines merges what differs between base and theirs into ours. A comment at the end of the first line stays there.
func mergeLines(base, ours, theirs []string, fresh bool) ([]string, bool) {
	var comment string
	if len(ours) > 0 && len(base) > 0 {
		if rest, ok := strings.CutPrefix(ours[0], base[0]); ok && isComment(rest) {
			comment, ours = rest, slices.Concat(base[:1], ours[1:])
		}
	}
	merged := slices.Clone(theirs)
	if !slices.Equal(base, ours) && (!fresh || len(ours) <= 1) {
		from := words(base)
		edits, ok := udiff.Merge(udiff.Lines(from, words(ours)), udiff.Lines(from, words(theirs)))
		if !ok {
			return nil, false
		}
		result, err := udiff.Apply(from, edits)
		if err != nil {
			return nil, false
		}
		merged = strings.Split(strings.ReplaceAll(result, "\n", ""), "\x00")
	}
	if comment != "" && len(merged) > 0 {
		merged[0] += comment
	}
	return merged, true
}

// word is what is compared of a line: a quoted string, a run of other characters, a blank or a mark.
var word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',\[\]{}\x00]+|.`)

// words returns a text with a word on each line, and a zero byte, which no manifest has, between lines.
func words(lines []string) string {
	return strings.Join(word.FindAllString(strings.Join(lines, "\x00"), -1), "\n") + "\n"
}

// shift indents printed lines of a piece as the text is. Lines that are indented deeper than the one before move with
// it.
func (m *merger) shift(p piece, lines []string) []string {
	if m.isJSON {
		return lines
	}
	shifted := slices.Clone(lines)
	depth, by := -1, 0 // of the line from which lines move
	for i, line := range lines {
		column := indent(line)
		if line == "" {
			continue
		}
		if depth < 0 || column < depth {
			depth, by = column, m.distance(p, column, isMarker(line[column:], "-"))
		}
		shifted[i] = strings.Repeat(" ", max(0, column+by)) + line[column:]
	}
	return shifted
}

// distance returns by how much a printed line of a piece is indented more in the text: as the key or item behind the
// piece, if that is a neighbor, or else as the nearest one before that is a neighbor or around it.
func (m *merger) distance(p piece, column int, item bool) int {
	if next := p.last + 1; next < len(m.starts) {
		s := m.base.at[m.starts[next].node]
		if s.column == column && s.item == item {
			return m.starts[next].column - column
		}
	}
	for at := p.last; at >= 0; at = m.starts[at].around {
		s := m.base.at[m.starts[at].node]
		if s.column < column || s.column == column && (item || !s.item) {
			return m.starts[at].column - s.column
		}
	}
	return 0
}

// keep writes lines of the text as they are.
func (m *merger) keep(from, to int) {
	if from < to {
		m.endLine()
		m.out.WriteString(m.src[m.text.start(from):m.text.start(to)])
	}
}

// add writes new lines.
func (m *merger) add(lines []string) {
	for _, line := range lines {
		m.endLine()
		if m.masked {
			line = unmask(line)
		}
		m.out.WriteString(line + m.eol())
	}
}

// endLine ends the line before, which may be the last one of the text.
func (m *merger) endLine() {
	if !endsLine(m.out.String()) {
		m.out.WriteString(m.eol())
	}
}
