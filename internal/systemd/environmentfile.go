package systemd

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EnvironmentFileHeader is the first line of every file that EnvironmentFile writes, a comment for all of its readers.
const EnvironmentFileHeader = "# Managed by capi-proxy-patcher"

// maxVar is the most bytes of one "NAME=VALUE" string: the 128 KiB that Linux
// accepts (MAX_ARG_STRLEN in execve(2)), less room for the addresses and names
// that a node adds to NO_PROXY. With a longer one systemd cannot start the
// service at all.
const maxVar = 124 << 10

// Var is one environment variable.
type Var struct {
	// Name is a POSIX name: an ASCII letter or underscore, then ASCII
	// letters, digits or underscores.
	Name string
	// Value is the value without any quoting.
	Value string
}

// EnvironmentFile returns a file that holds the proxy variables of a node. It has three readers: containerd and kubelet
// through systemd's EnvironmentFile= (systemd.exec(5)), and the shell that runs kubeadm, which sources it (POSIX XCU
// 2.2.3). Only what both grammars read as the same value is written: EnvironmentFileHeader, then one NAME="VALUE" line
// per variable in the order given, each line ended by a newline. Within the double quotes a
// backslash precedes every \, ", $ and backtick, the four characters that
// keep a meaning there for a shell; systemd removes a backslash before
// exactly the same four. Nothing else is changed: unlike in a unit's
// Environment=, % has no meaning in an EnvironmentFile=.
//
// The error is that of ValidateVars. EnvironmentFile does not modify vars.
func EnvironmentFile(vars []Var) ([]byte, error) {
	if err := ValidateVars(vars); err != nil {
		return nil, fmt.Errorf("rendering environment file: %w", err)
	}
	text := []byte(EnvironmentFileHeader + "\n")
	for _, v := range vars {
		text = append(text, v.Name+`="`...)
		for _, char := range []byte(v.Value) {
			if strings.IndexByte("\\\"$`", char) >= 0 {
				text = append(text, '\\')
			}
			text = append(text, char)
		}
		text = append(text, "\"\n"...)
	}
	return text, nil
}

// ValidateVars returns an error for every variable that cannot reach a process
// on the node unchanged, joined in input order, or nil. A variable is refused
// if
//
//   - its name is not a POSIX name, or occurs a second time;
//   - its value is not valid UTF-8;
//   - its value holds a control character (tab and newline included), a
//     Unicode line or paragraph separator or a noncharacter: each of them
//     ends or breaks a line of this file or of the YAML that carries it;
//   - its value holds "{{", "{%" or "{#", because cloud-init renders the
//     whole of user-data as a Jinja template and drops all of it if one of
//     them is not the start of valid Jinja;
//   - name, "=" and value are longer than 126,976 bytes, which leaves room
//     below the limit of execve(2) for one variable.
//
// Its error is one line with all of it, which names the variable and a byte offset, never the value.
func ValidateVars(vars []Var) error {
	var problems []string
	seen := make(map[string]bool, len(vars))
	for i, v := range vars {
		switch {
		case !isName(v.Name):
			problems = append(problems,
				fmt.Sprintf("variable %d (%q): not a name of ASCII letters, digits and underscores", i+1, v.Name))
			continue
		case seen[v.Name]:
			problems = append(problems, fmt.Sprintf("variable %d (%s): occurs twice", i+1, v.Name))
		}
		seen[v.Name] = true
		if err := checkValue(v); err != nil {
			problems = append(problems, fmt.Sprintf("variable %d (%s): %s", i+1, v.Name, err))
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

func checkValue(v Var) error {
	if len(v.Name)+len("=")+len(v.Value) > maxVar {
		return fmt.Errorf("longer than %d bytes", maxVar)
	}
	if !utf8.ValidString(v.Value) {
		return errors.New("invalid UTF-8")
	}
	if i := strings.IndexFunc(v.Value, breaksLine); i >= 0 {
		return fmt.Errorf("control character or line separator at byte %d", i)
	}
	for _, mark := range []string{"{{", "{%", "{#"} {
		if i := strings.Index(v.Value, mark); i >= 0 {
			return fmt.Errorf("%q at byte %d, which cloud-init reads as a template", mark, i)
		}
	}
	return nil
}

// breaksLine reports whether YAML 1.1, which cloud-init reads, ends a line at
// r or forbids r (YAML 1.1, 5.1 and 5.4).
func breaksLine(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\uFFFE' || r == '\uFFFF'
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

// ParseEnvironmentFile returns the variables of a file that EnvironmentFile has written, in their order. Any other file
// is an error, which names the line and never a value.
func ParseEnvironmentFile(content []byte) ([]Var, error) {
	text, found := strings.CutPrefix(string(content), EnvironmentFileHeader+"\n")
	if !found {
		return nil, fmt.Errorf("line 1 is not %q", EnvironmentFileHeader)
	}
	var vars []Var
	line := 1
	for entry := range strings.Lines(text) {
		line++
		name, quoted, found := strings.Cut(strings.TrimSuffix(entry, "\n"), "=")
		value, good := unquote(quoted)
		if !found || !good || !isName(name) || !strings.HasSuffix(entry, "\n") {
			return nil, fmt.Errorf("line %d is not NAME=\"VALUE\"", line)
		}
		vars = append(vars, Var{Name: name, Value: value})
	}
	return vars, nil
}

// unquote is the inverse of what EnvironmentFile does to a value.
func unquote(s string) (value string, good bool) {
	if len(s) < len(`""`) || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	var b strings.Builder
	for inner := s[1 : len(s)-1]; inner != ""; {
		c := inner[0]
		inner = inner[1:]
		special := strings.IndexByte("\\\"$`", c) >= 0
		if special {
			if c != '\\' || inner == "" || strings.IndexByte("\\\"$`", inner[0]) < 0 {
				return "", false
			}
			c, inner = inner[0], inner[1:]
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
