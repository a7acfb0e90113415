package foreign

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// dropIn returns the variables of a drop-in, as systemd reads them: systemd.syntax(7) on quoting, systemd.unit(5) on
// specifiers.
func dropIn(text string) ([]envfile.Var, error) {
	options, err := unit.DeserializeOptions(strings.NewReader(text))
	if err != nil {
		return nil, errors.New("the drop-in is not a unit file of systemd")
	}
	var vars []envfile.Var
	for _, o := range options {
		switch {
		case o.Section != "Service":
		case o.Name == "EnvironmentFile":
			return nil, fmt.Errorf("the drop-in takes its values from the file %s; read that one", strings.TrimSpace(o.Value))
		case o.Name == "Environment" && strings.TrimSpace(o.Value) == "":
			vars = nil // systemd begins anew
		case o.Name == "Environment":
			found, err := assignments(o.Value)
			if err != nil {
				return nil, err
			}
			vars = append(vars, found...)
		}
	}
	return vars, nil
}

// assignments splits the value of Environment= into variables.
func assignments(text string) ([]envfile.Var, error) {
	var (
		vars    []envfile.Var
		word    strings.Builder
		inWord  bool
		quote   byte
		problem = func(what string) ([]envfile.Var, error) {
			return nil, errors.New("Environment= of the drop-in has " + what)
		}
	)
	end := func() bool {
		name, value, found := strings.Cut(word.String(), "=")
		vars, inWord = append(vars, envfile.Var{Name: name, Value: value}), false
		word.Reset()
		return found
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\':
			i++
			if i == len(text) || !strings.ContainsRune(`\"'`, rune(text[i])) && text[i] != ' ' {
				return problem("a backslash before another character than a quote or a backslash; write the value without it")
			}
			word.WriteByte(text[i])
			inWord = true
		case c == '%':
			i++
			if i == len(text) || text[i] != '%' {
				return problem("a single %, which systemd replaces; write %%")
			}
			word.WriteByte('%')
			inWord = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\'') && word.Len() == 0:
			quote, inWord = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if inWord && !end() {
				return problem("a word without an equals sign")
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quote != 0 {
		return problem("a quote that is not closed")
	}
	if inWord && !end() {
		return problem("a word without an equals sign")
	}
	return vars, nil
}
