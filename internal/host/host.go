// Package host reads hosts and ports of proxy settings, NO_PROXY entries and destinations.
package host

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// ASCII converts an international name for lookup (RFC 5891, UTS 46 without transitional mapping), and leaves a name in
// ASCII unchanged. It reports false if IDNA rejects the name.
func ASCII(name string) (string, bool) {
	if IsASCII(name) {
		return name, true
	}
	profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))
	out, err := profile.ToASCII(name)
	return out, err == nil && IsASCII(out)
}

// IsASCII reports whether s has only ASCII characters.
func IsASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// Port returns a port without leading zeros. It reports false if text is not a number from 1 to 65535 of at most five
// digits.
func Port(text string) (string, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return strconv.FormatUint(n, 10), err == nil && n > 0 && len(text) <= len("65535")
}
