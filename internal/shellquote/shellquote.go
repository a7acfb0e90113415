// Package shellquote writes values as words of a POSIX shell command.
//
// The commands end up in a bootstrap script that Cluster API renders twice:
// for cloud-init as user-data, which cloud-init treats as a Jinja template
// before /bin/sh runs it, and for Ignition as a script that bash runs. Every
// word written here is the same bytes to all of them.
package shellquote

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Word returns s as exactly one word: in single quotes, inside which POSIX
// gives no character a meaning (XCU 2.2.2). A single quote, which cannot
// stand there, closes the quotes, follows escaped, and opens them again.
//
// The result never contains "{{", "{%" or "{#", because cloud-init renders
// the whole of user-data as a Jinja template and drops all of it if one of
// them is not the start of valid Jinja. Word separates the two characters by
// closing and opening the quotes.
//
// It is an error if s is not valid UTF-8 or holds a control character
// (NUL, newline, carriage return, tab, DEL, U+0080 to U+009F). The error
// names the byte offset, never the value.
func Word(s string) (string, error) {
	if err := check(s); err != nil {
		return "", fmt.Errorf("quoting shell word: %w", err)
	}
	return quote(s), nil
}

// Export returns the command that sets the environment variable name to
// value for the rest of the script: export NAME='value'.
//
// It is an error if name is not a POSIX name (a letter or underscore, then
// letters, digits or underscores, all ASCII) or if Word refuses value. The
// error names the variable, never its value.
func Export(name, value string) (string, error) {
	if !isName(name) {
		return "", fmt.Errorf("exporting variable %q: not a name of ASCII letters, digits and underscores", name)
	}
	if err := check(value); err != nil {
		return "", fmt.Errorf("exporting variable %s: %w", name, err)
	}
	return "export " + name + "=" + quote(value), nil
}

func check(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("invalid UTF-8")
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Errorf("control character at byte %d", i)
	}
	return nil
}

func quote(s string) string {
	var b strings.Builder
	b.Grow(len(s) + len("''"))
	b.WriteByte('\'')
	for i := range len(s) {
		switch {
		case s[i] == '\'':
			b.WriteString(`'\''`)
		case i > 0 && s[i-1] == '{' && strings.IndexByte("{%#", s[i]) >= 0:
			b.WriteString("''")
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	b.WriteByte('\'')
	return b.String()
}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
