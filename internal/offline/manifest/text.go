package manifest

import "strings"

// text is the source of one document together with the places where its lines begin. Line numbers are 1-based, as in
// the nodes of the YAML parser, and a line break is what that parser reads as one.
type text struct {
	src    string
	starts []int
}

// newText indexes src. A final line without a line break counts as a line, an empty rest does not.
func newText(src string) text {
	t := text{src: src}
	for at := 0; at < len(src); {
		t.starts = append(t.starts, at)
		_, width := lineBreak(src[at:])
		at += width
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

// eol returns the line break that added lines get: the first one in the text, "\n" if there is none.
func (t text) eol() string {
	content, full := lineBreak(t.src)
	if content == full {
		return "\n"
	}
	return t.src[content:full]
}

// endsLine reports whether a text ends with a line break, or is empty.
func endsLine(s string) bool {
	return s == "" || strings.HasSuffix(s, "\n") || strings.HasSuffix(s, "\r")
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
