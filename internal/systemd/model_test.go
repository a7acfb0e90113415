package systemd_test

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// errUnmodelled marks a specifier that systemd replaces by something of the
// machine it runs on.
var errUnmodelled = errors.New("resolves a specifier")

// readLikeSystemd models how systemd reads the Environment= lines of a unit
// file: continuation lines, words and quotes, C escapes, specifiers, and what
// it ignores. A test compares the model with the real reader, so that fuzzing
// can use the fast one.
func readLikeSystemd(content string) (map[string]string, error) {
	environ := map[string]string{}
	section := ""
	for _, line := range logicalLines(content) {
		line = strings.Trim(line, " \t\r\n")
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = line
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found || section != "[Service]" || strings.TrimRight(key, " \t\r\n") != "Environment" {
			continue
		}
		value = strings.TrimLeft(value, " \t\r\n")
		if value == "" {
			clear(environ)
			continue
		}
		if err := readAssignments(environ, value); err != nil {
			return nil, err
		}
	}
	return environ, nil
}

// logicalLines joins a line that ends in an unescaped backslash with the next
// and drops comments and empty lines.
func logicalLines(content string) []string {
	var lines []string
	joined := ""
	for line := range strings.SplitSeq(content, "\n") {
		trimmed := strings.TrimLeft(line, " \t\r\n")
		if strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
			continue
		}
		backslashes := len(line) - len(strings.TrimRight(line, `\`))
		if backslashes%2 == 1 {
			joined += line[:len(line)-1] + " "
			continue
		}
		lines = append(lines, joined+line)
		joined = ""
	}
	if joined != "" {
		lines = append(lines, joined)
	}
	return lines
}

// readAssignments keeps what comes before a word that is not well-formed and
// ignores the rest of the line.
func readAssignments(environ map[string]string, line string) error {
	for {
		word, rest, ok := nextWord(line)
		if !ok {
			return nil
		}
		line = rest
		word, ok, err := expandSpecifiers(word)
		if err != nil {
			return err
		}
		name, value, found := strings.Cut(word, "=")
		if ok && found && isEnvName(name) && isEnvValue(value) {
			environ[name] = value
		}
	}
}

func nextWord(s string) (word, rest string, ok bool) {
	s = strings.TrimLeft(s, blanks)
	if s == "" {
		return "", "", false
	}
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			text, used := unescape(s[i+1:])
			if used == 0 {
				return "", "", false
			}
			b.WriteString(text)
			i += used
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && strings.IndexByte(blanks, c) >= 0:
			return b.String(), s[i:], true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", quote == 0
}

// unescape reads what follows a backslash and returns the number of bytes
// used, 0 if it is not an escape sequence.
func unescape(s string) (text string, used int) {
	if s == "" {
		return "", 0
	}
	if i := strings.IndexByte(`abfnrtvs\"'`, s[0]); i >= 0 {
		return "\a\b\f\n\r\t\v \\\"'"[i : i+1], 1
	}
	var digits int
	base, skip := 16, 1
	switch s[0] {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case '0', '1', '2', '3', '4', '5', '6', '7':
		digits, base, skip = 3, 8, 0
	default:
		return "", 0
	}
	if len(s) < skip+digits {
		return "", 0
	}
	number, err := strconv.ParseUint(s[skip:skip+digits], base, 32)
	switch {
	case err != nil || number == 0 || base == 8 && number > 255:
		return "", 0
	case digits <= 3:
		return string([]byte{byte(number)}), skip + digits //nolint:gosec // two or three digits, at most 255
	case number > utf8.MaxRune || !utf8.ValidRune(rune(number)):
		return "", 0
	default:
		return string(rune(number)), skip + digits
	}
}

// expandSpecifiers reports false for a specifier that does not exist, because
// of which systemd ignores the whole assignment.
func expandSpecifiers(s string) (string, bool, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		switch {
		case c == '%':
			b.WriteByte('%')
		case strings.IndexByte("aAbBcCdDEfgGhHiIjJlLmMnNopPqrsStTuUvVwWyY", c) >= 0:
			return "", false, errUnmodelled
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
			return "", false, nil
		default:
			b.WriteString(s[i-1 : i+1])
		}
	}
	return b.String(), true, nil
}

func isEnvName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

func isEnvValue(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' || r == 0x7f
	})
}
