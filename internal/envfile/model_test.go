package envfile_test

import (
	"strings"
	"unicode/utf8"
)

// readLikeSystemd models how systemd reads an EnvironmentFile=: the states of
// its parser, and what it ignores afterwards. A test compares the model with
// the real reader, so that fuzzing can use the fast one.
func readLikeSystemd(content string) map[string]string {
	const (
		beforeKey = iota
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
	const blanks, newlines = " \t\n\r", "\n\r"
	environ := map[string]string{}
	var key, value strings.Builder
	// valueEnd is where the trailing blanks of an unquoted value begin, or -1.
	state, valueEnd := beforeKey, -1
	push := func() {
		text := value.String()
		if valueEnd >= 0 {
			text = text[:valueEnd]
		}
		name := strings.TrimRight(key.String(), blanks)
		if isEnvName(name) && utf8.ValidString(text) {
			environ[name] = text
		}
		key.Reset()
		value.Reset()
		valueEnd = -1
	}
	for i := range len(content) {
		c := content[i]
		isNewline := strings.IndexByte(newlines, c) >= 0
		isBlank := strings.IndexByte(blanks, c) >= 0
		switch state {
		case beforeKey:
			switch {
			case c == '#' || c == ';':
				state = inComment
			case !isBlank:
				state = inKey
				key.WriteByte(c)
			}
		case inKey:
			switch {
			case isNewline:
				state = beforeKey
				key.Reset()
			case c == '=':
				state = beforeValue
			default:
				key.WriteByte(c)
			}
		case beforeValue:
			switch {
			case isNewline:
				state = beforeKey
				push()
			case c == '\'':
				state = inSingle
			case c == '"':
				state = inDouble
			case c == '\\':
				state = inValueEscape
			case !isBlank:
				state = inValue
				value.WriteByte(c)
			}
		case inValue:
			switch {
			case isNewline:
				state = beforeKey
				push()
			case c == '\\':
				state = inValueEscape
				valueEnd = -1
			default:
				if !isBlank {
					valueEnd = -1
				} else if valueEnd < 0 {
					valueEnd = value.Len()
				}
				value.WriteByte(c)
			}
		case inValueEscape:
			state = inValue
			if !isNewline {
				value.WriteByte(c)
			}
		case inSingle:
			if c == '\'' {
				state = beforeValue
			} else {
				value.WriteByte(c)
			}
		case inDouble:
			switch c {
			case '"':
				state = beforeValue
			case '\\':
				state = inDoubleEscape
			default:
				value.WriteByte(c)
			}
		case inDoubleEscape:
			state = inDouble
			switch {
			case strings.IndexByte("\"\\`$", c) >= 0:
				value.WriteByte(c)
			case c != '\n':
				value.WriteByte('\\')
				value.WriteByte(c)
			}
		case inComment:
			if c == '\\' {
				state = inCommentEscape
			} else if isNewline {
				state = beforeKey
			}
		case inCommentEscape:
			state = inComment
		}
	}
	switch state {
	case beforeValue, inValue, inValueEscape, inSingle, inDouble, inDoubleEscape:
		push()
	default:
	}
	return environ
}

func isEnvName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
