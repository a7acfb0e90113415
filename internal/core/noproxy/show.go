package noproxy

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

const (
	// maxShown is how many bytes of an entry a finding shows.
	maxShown = 64
	// maxShownLabel is the longest label that is shown: a longer one is rather a key or a token than a name.
	maxShownLabel = 40
)

// shape is a host with a scheme before it, and ports or lengths after it.
var shape = regexp.MustCompile(
	`^((?:[A-Za-z]+://)?(?:[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*|\[[0-9A-Fa-f:.]*\]?|[^:/]*))` +
		`((?::[0-9]{1,5}|/[0-9.:]*)*)`)

// shown returns an entry in quotes and printable ASCII, "" if it may be a credential. What follows the host is left
// out, unless it is a port or a length.
func shown(entry string) string {
	// A character of control comes from a paste of something else.
	if strings.ContainsAny(entry, "@%=+$!&#~^?`{}") || strings.ContainsFunc(entry, unicode.IsControl) {
		return ""
	}
	for label := range strings.FieldsFuncSeq(entry, func(r rune) bool { return strings.ContainsRune(".:/", r) }) {
		if len(label) > maxShownLabel {
			return ""
		}
	}
	parts := shape.FindStringSubmatch(entry)
	text := parts[0]
	if text != entry {
		text = parts[1]
	}
	text = text[:min(len(text), maxShown)]
	quoted := strconv.QuoteToASCII(text)
	if text != entry {
		quoted = strings.TrimSuffix(quoted, `"`) + `…"`
	}
	return quoted
}
