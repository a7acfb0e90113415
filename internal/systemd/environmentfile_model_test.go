package systemd_test

import (
	"strings"
	"unicode/utf8"
)

// readFileLikeSystemd models how systemd reads an EnvironmentFile=: the states of
// its parser, and what it ignores afterwards. A test compares the model with
// the real reader, so that fuzzing can use the fast one.
func readFileLikeSystemd(content string) map[string]string {
	r := systemdReader{valueEnd: -1, environ: map[string]string{}}
	for i := range len(content) {
		switch c := content[i]; r.state {
		case beforeKey, inKey, inComment, inCommentEscape:
			r.readKey(c)
		case beforeValue, inValue, inValueEscape:
			r.readValue(c)
		default:
			r.readQuoted(c)
		}
	}
	switch r.state {
	case beforeKey, inKey, inComment, inCommentEscape:
	default:
		r.push()
	}
	return r.environ
}

// systemdReader is the parser between two bytes.
type systemdReader struct {
	state      readerState
	key, value strings.Builder
	// valueEnd is where the trailing spaces of an unquoted value begin, or -1.
	valueEnd int
	environ  map[string]string
}

type readerState int

const (
	beforeKey readerState = iota
	inKey
	beforeValue
	inValue
	inValueEscape
	inSingle
	inDouble
	inDoubleEscape
	inComment
	inCommentEscape
)

const blanks = " \t\n\r"

func isBlank(c byte) bool { return strings.IndexByte(blanks, c) >= 0 }

func isNewline(c byte) bool { return c == '\n' || c == '\r' }

// push ends a value.
func (r *systemdReader) push() {
	text := r.value.String()
	if r.valueEnd >= 0 {
		text = text[:r.valueEnd]
	}
	name := strings.TrimRight(r.key.String(), blanks)
	if isEnvName(name) && utf8.ValidString(text) {
		r.environ[name] = text
	}
	r.key.Reset()
	r.value.Reset()
	r.valueEnd = -1
	r.state = beforeKey
}

// readKey reads a byte of a key or a comment.
func (r *systemdReader) readKey(c byte) {
	switch {
	case r.state == inCommentEscape:
		r.state = inComment
	case r.state == inComment && c == '\\':
		r.state = inCommentEscape
	case r.state == inComment && isNewline(c):
		r.state = beforeKey
	case r.state == inComment:
	case r.state == beforeKey && (c == '#' || c == ';'):
		r.state = inComment
	case r.state == beforeKey && isBlank(c):
	case r.state == inKey && isNewline(c):
		r.state = beforeKey
		r.key.Reset()
	case r.state == inKey && c == '=':
		r.state = beforeValue
	default:
		r.state = inKey
		r.key.WriteByte(c)
	}
}

// readValue reads a byte of a value outside of quotes.
func (r *systemdReader) readValue(c byte) {
	switch {
	case r.state == inValueEscape:
		r.state = inValue
		if !isNewline(c) {
			r.value.WriteByte(c)
		}
	case isNewline(c):
		r.push()
	case c == '\\':
		r.state = inValueEscape
		r.valueEnd = -1
	case r.state == beforeValue && c == '\'':
		r.state = inSingle
	case r.state == beforeValue && c == '"':
		r.state = inDouble
	case r.state == beforeValue && isBlank(c):
	default:
		if r.state == beforeValue || !isBlank(c) {
			r.valueEnd = -1
		} else if r.valueEnd < 0 {
			r.valueEnd = r.value.Len()
		}
		r.state = inValue
		r.value.WriteByte(c)
	}
}

// readQuoted reads a byte of a value between quotes.
func (r *systemdReader) readQuoted(c byte) {
	switch {
	case r.state == inSingle && c == '\'', r.state == inDouble && c == '"':
		r.state = beforeValue
	case r.state == inDouble && c == '\\':
		r.state = inDoubleEscape
	case r.state == inDoubleEscape && strings.IndexByte("\"\\`$", c) < 0:
		r.state = inDouble
		if c != '\n' {
			r.value.WriteByte('\\')
			r.value.WriteByte(c)
		}
	default:
		if r.state == inDoubleEscape {
			r.state = inDouble
		}
		r.value.WriteByte(c)
	}
}
