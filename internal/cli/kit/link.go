package kit

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Link returns the address of the section of docs/troubleshooting.md about a reason, a code or a check.
func Link(name string) string {
	const page = "https://github.com/capi-proxy-patcher/capi-proxy-patcher/blob/main/docs/troubleshooting.md"
	return page + "#" + strings.ToLower(name)
}

// named is how reasons and codes look. Tenants may write others into the objects from which commands read them.
var named = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,62}$`)

// Links returns one line for each section, in the order of the names, "" if there is none.
func Links(names ...string) string {
	var text strings.Builder
	for i, name := range names {
		if named.MatchString(name) && !slices.Contains(names[:i], name) {
			text.WriteString("see " + Link(name) + "\n")
		}
	}
	return text.String()
}

// Sections returns the names of the sections about findings, for Links.
func Sections(found []finding.Finding) []string {
	names := make([]string, len(found))
	for i, f := range found {
		names[i] = cmp.Or(string(f.Code), f.Reason)
	}
	return names
}

// Among returns the findings among the arguments of a text.
func Among(args []any) (found finding.Errors) {
	for _, arg := range args {
		switch arg := arg.(type) {
		case finding.Finding:
			found = append(found, arg)
		case error:
			found = append(found, finding.Of(arg)...)
		}
	}
	return found
}
