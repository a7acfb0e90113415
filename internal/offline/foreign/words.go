package foreign

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

var (
	exports = regexp.MustCompile(`^(export|declare -x)[ \t]+`)
	// shellPart and unitPart are parts of a word: quoted, escaped or a plain character.
	shellPart = regexp.MustCompile(`'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\;&|<>()]`)
	unitPart  = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\]`)
	// shellWord and unitWord are a word, and what separates it from the next.
	shellWord = regexp.MustCompile(`^((?:` + shellPart.String() + `)+)([ \t;]+|$)`)
	unitWord  = regexp.MustCompile(`^((?:` + unitPart.String() + `)+)(\s+|$)`)
	name      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// expansion is what a shell replaces, outside of single quotes.
	expansion = regexp.MustCompile("(?:^|[^\\\\])(?:\\\\\\\\)*[$`]")
	escaped   = regexp.MustCompile(`\\(.)`)
)

// dropIn returns the variables of a drop-in, as systemd reads them: systemd.syntax(7), and systemd.unit(5) on
// specifiers.
func dropIn(text string) ([]envfile.Var, error) {
	options, err := unit.DeserializeOptions(strings.NewReader(text))
	if err != nil {
		return nil, errors.New("the drop-in is not a unit file of systemd")
	}
	var vars []envfile.Var
	for _, o := range options {
		value := strings.TrimSpace(o.Value)
		switch {
		case o.Section != "Service":
		case o.Name == "EnvironmentFile":
			return nil, fmt.Errorf("the drop-in takes its values from the file %s; read that one", placeOf("", value))
		case o.Name == "Environment" && value == "":
			vars = nil // systemd begins anew
		case o.Name != "Environment":
		case strings.Contains(strings.ReplaceAll(value, "%%", ""), "%"):
			return nil, errors.New("the drop-in has a single %, which systemd replaces; write %%")
		default:
			found, err := words(strings.ReplaceAll(value, "%%", "%"), true)
			if err != nil {
				return nil, err
			}
			vars = append(vars, found...)
		}
	}
	return vars, nil
}

// shell returns the variables that a shell file assigns. Nothing is executed or expanded: a proxy variable with an
// expansion is an error, and so is everything but an assignment.
func shell(text string) (vars []envfile.Var, err error) {
	text = strings.NewReplacer("\r\n", "\n", "\\\n", "", "\\\r\n", "").Replace(text)
	for i, line := range strings.Split(text, "\n") {
		found, err := words(line, false)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		vars = append(vars, found...)
	}
	return vars, nil
}

// words returns the variables that a line of a shell file, or Environment= of systemd, assigns. Errors quote nothing.
func words(line string, systemd bool) (vars []envfile.Var, err error) {
	word := map[bool]*regexp.Regexp{true: unitWord, false: shellWord}[systemd]
	exported := false
	for line = strings.TrimSpace(line); line != "" && (systemd || line[0] != '#'); {
		if export := exports.FindString(line); !systemd && export != "" {
			line, exported = line[len(export):], true
		}
		m := append(word.FindStringSubmatch(line), "", "", "")
		line = line[len(m[0]):]
		text, problem := unquote(m[1], systemd)
		variable, value, assigned := strings.Cut(text, "=")
		switch {
		case !name.MatchString(variable) || !assigned && !exported:
			return nil, errors.New("something else than NAME=VALUE with closed quotes; nothing is executed, so remove it")
		case problem != "" && (systemd || proxyKey.MatchString(variable)):
			return nil, fmt.Errorf("variable %s has %s", variable, problem)
		case problem == "" && assigned:
			vars = append(vars, envfile.Var{Name: variable, Value: value})
		}
		exported = exported && !strings.Contains(m[2], ";")
	}
	return vars, nil
}

// unquote returns the text of a word, and why it cannot be read.
func unquote(word string, systemd bool) (text, problem string) {
	part, special := shellPart, "\\\"$`" // what a backslash protects in double quotes
	if systemd {
		part, special = unitPart, `\"' `
	}
	text = part.ReplaceAllStringFunc(word, func(p string) string {
		inner := p
		if p[0] == '"' || p[0] == '\'' {
			inner = p[1 : len(p)-1]
		}
		switch {
		case p[0] == '\'' && !systemd:
			return inner
		case p[0] == '\\' && !systemd:
			return p[1:]
		case !systemd && expansion.MatchString(inner):
			problem = "a $ or `, which is not expanded; write the value, or put it in single quotes"
		}
		return escaped.ReplaceAllStringFunc(inner, func(e string) string {
			if strings.Contains(special, e[1:]) {
				return e[1:]
			} else if systemd {
				problem = "a backslash before another character than a quote or a backslash; write the value without it"
			}
			return e
		})
	})
	return text, problem
}
