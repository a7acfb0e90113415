package manifest

import (
	"regexp"
	"strings"
)

// defaulted begins a variable of clusterctl that has a default: its name and what stands between name and default.
var defaulted = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:=|:-|=|-)`)

// SameName returns a name with the defaults of its variables left out: two names are the same, whatever their
// variables are set to, if the results are equal. ${NAME:=a}-b and ${NAME}-b are.
func SameName(name string) string {
	return withDefaults(name, func(variable, _, _ string) string { return "${" + variable + "}" })
}

// PartOfName returns a name as text that can be part of another one: the quotes around the defaults of its
// variables, which are those of a YAML scalar, are left out.
func PartOfName(name string) string {
	return withDefaults(name, func(variable, operator, value string) string {
		if last := len(value) - 1; last > 0 && value[0] == value[last] && (value[0] == '"' || value[0] == '\'') {
			value = value[1:last]
		}
		return "${" + variable + operator + value + "}"
	})
}

// withDefaults replaces the variables of a text that have a default.
func withDefaults(text string, replacement func(variable, operator, value string) string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		text = "${" + rest
		match := defaulted.FindStringSubmatch(text)
		end := closing(text)
		switch {
		case match == nil || end < 0:
			b.WriteString("${")
			text = rest
		default:
			b.WriteString(replacement(match[1], match[2], text[len(match[0]):end]))
			text = text[end+1:]
		}
	}
}

// closing returns where the brace ends that opens a variable, -1 if it does not.
func closing(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
