package manifest

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// text is the source of one document together with the places where its lines begin. Line numbers are 1-based, as in
// the nodes of the YAML parser, and a line break is what that parser reads as one (YAML 1.1, section 4.2).
type text struct {
	src    string
	starts []int
}

// newText indexes src. A final line without a line break counts as a line, an empty rest does not. A byte order mark
// after the line of a "---" counts as the end of that line.
func newText(src string) text {
	t := text{src: src}
	for at := 0; at < len(src); {
		t.starts = append(t.starts, at)
		content, width := lineBreak(src[at:])
		line := src[at : at+content]
		at += width
		if isMarker(line, "---") && (isBlank(line[3:]) || isComment(line[3:])) && strings.HasPrefix(src[at:], bom) {
			at += len(bom)
		}
	}
	return t
}

// lineBreak returns the length of the first line of s without and with its line break.
func lineBreak(s string) (content, full int) {
	for i := range len(s) {
		switch {
		case s[i] == '\n':
			return i, i + 1
		case s[i] == '\r' && strings.HasPrefix(s[i+1:], "\n"):
			return i, i + 2
		case s[i] == '\r':
			return i, i + 1
		case s[i] == 0xC2 && strings.HasPrefix(s[i:], "\u0085"):
			return i, i + len("\u0085")
		case s[i] == 0xE2 && (strings.HasPrefix(s[i:], "\u2028") || strings.HasPrefix(s[i:], "\u2029")):
			return i, i + len("\u2028")
		}
	}
	return len(s), len(s)
}

// lines returns the number of lines.
func (t text) lines() int { return len(t.starts) }

// start returns the offset at which a line begins; one past the last line is the end of the text.
func (t text) start(line int) int {
	if line > len(t.starts) {
		return len(t.src)
	}
	return t.starts[line-1]
}

// end returns the offset at which the content of a line ends, before its line break.
func (t text) end(line int) int {
	content, _ := lineBreak(t.src[t.start(line):])
	return t.start(line) + content
}

// line returns the content of a line without its line break.
func (t text) line(line int) string { return t.src[t.start(line):t.end(line)] }

// offset returns the byte offset of a 1-based line and a 1-based column counted in characters.
func (t text) offset(line, column int) (int, bool) {
	if line < 1 || line > t.lines() || column < 1 {
		return 0, false
	}
	at := t.start(line)
	for range column - 1 {
		if at >= len(t.src) {
			return 0, false
		}
		_, width := utf8.DecodeRuneInString(t.src[at:])
		at += width
	}
	return at, true
}

// eol returns the line break that added lines get: the first one in the text, "\n" if there is none.
func (t text) eol() string {
	content, full := lineBreak(t.src)
	if content == full {
		return "\n"
	}
	return t.src[content:full]
}

// splice is one change of a text: it replaces the bytes from..to.
type splice struct {
	from, to int
	text     string
	// depth orders insertions at one place: after the end of an inner collection first.
	depth int
}

// insert inserts lines before the given line.
func (t text) insert(line int, lines []string, depth int) splice {
	at := t.start(line)
	return splice{at, at, strings.Join(lines, t.eol()) + t.eol(), depth}
}

// remove removes the lines first to last.
func (t text) remove(first, last int) splice {
	return splice{from: t.start(first), to: t.start(last + 1)}
}

// replace replaces the lines first to last.
func (t text) replace(first, last int, lines []string) splice {
	return splice{from: t.start(first), to: t.end(last), text: strings.Join(lines, t.eol())}
}

// splice returns the source with changes made, which all refer to the unchanged text. It reports false if two of them
// touch the same bytes. A text whose last line has no line break keeps that property, which changes some values.
func (t text) splice(changes []splice) (string, bool) {
	slices.SortStableFunc(changes, func(a, b splice) int {
		return cmp.Or(a.from-b.from, min(a.to-a.from, 1)-min(b.to-b.from, 1), b.depth-a.depth)
	})
	var b strings.Builder
	at := 0
	for _, c := range changes {
		if c.from < at {
			return "", false
		}
		b.WriteString(t.src[at:c.from])
		if c.from == len(t.src) && c.text != "" && !endsLine(b.String()) {
			b.WriteString(t.eol())
		}
		b.WriteString(c.text)
		at = c.to
	}
	b.WriteString(t.src[at:])
	if result := b.String(); endsLine(t.src) || !endsLine(result) {
		return result, true
	}
	return strings.TrimSuffix(strings.TrimSuffix(b.String(), "\n"), "\r"), true
}

// endsLine reports whether a text ends with a line break, or is empty.
func endsLine(s string) bool {
	last, _ := utf8.DecodeLastRuneInString(s)
	return s == "" || strings.ContainsRune("\n\r\u0085\u2028\u2029", last)
}

// indent returns the number of spaces a line begins with.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// isBlank reports whether a line has only spaces.
func isBlank(line string) bool { return strings.Trim(line, " \t") == "" }

// isComment reports whether a line has only a comment.
func isComment(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") }

// isMarker reports whether a line is a document marker, "---" or "...", at the first column.
func isMarker(line, marker string) bool {
	rest, ok := strings.CutPrefix(line, marker)
	return ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

// chunk is the source of one document in its stream: comments and directives before it, its "---" line, its content,
// and what follows up to the next document.
type chunk struct {
	src  string
	line int  // of the first line in the stream
	bom  bool // a byte order mark is before src
}

// bom is the byte order mark; it may begin a stream and every document in it (YAML 1.2.2, section 5.2).
const bom = "\uFEFF"

// split cuts a stream into documents. Joined again, the chunks are the stream. A marker at the first column ends a
// document in any place, even inside a scalar (YAML 1.2.2, section 9.1.2), so that no parsing is needed to find it.
// JSON values behind each other are documents, too.
func split(data string) []chunk {
	var chunks []chunk
	var content, marker bool // of the chunk at hand
	begin, beginLine := 0, 1
	ended, endedLine := -1, 0 // behind the "..." of the chunk at hand
	cut := func(at, line int) {
		c := chunk{src: data[begin:at], line: beginLine}
		c.src, c.bom = strings.CutPrefix(c.src, bom)
		chunks = append(chunks, splitJSON(c)...)
		begin, beginLine, ended, content, marker = at, line, -1, false, false
	}
	for at, number := 0, 1; at < len(data); number++ {
		length, full := lineBreak(data[at:])
		line := strings.TrimPrefix(data[at:at+length], bom)
		starts := isMarker(line, "---")
		quiet := isBlank(line) || isComment(line)
		switch {
		case ended >= 0 && !quiet:
			cut(ended, endedLine)
		case starts && (content || marker):
			cut(at, number)
		}
		switch {
		case starts:
			marker = true
		case isMarker(line, "..."):
			ended, endedLine = at+full, number+1
		case !quiet && (marker || !strings.HasPrefix(line, "%")):
			content = true
		}
		at += full
	}
	if begin < len(data) {
		cut(len(data), 0)
	}
	return chunks
}
