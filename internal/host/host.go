// Package host reads what hosts in proxy settings, in NO_PROXY and in destinations have in common.
package host

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// ASCII converts an international name as lookups do (RFC 5891, UTS 46 without transitional mapping), and leaves a name in
// ASCII as it is. It reports false if IDNA refuses the name.
func ASCII(name string) (string, bool) {
	if IsASCII(name) {
		return name, true
	}
	profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))
	out, err := profile.ToASCII(name)
	return out, err == nil && IsASCII(out)
}

// IsASCII reports whether s has no other characters than those of ASCII.
func IsASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// Port returns a port without leading zeros. It reports false if text is not a number from 1 to 65535 of at most five digits.
func Port(text string) (string, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return strconv.FormatUint(n, 10), err == nil && n > 0 && len(text) <= len("65535")
}
