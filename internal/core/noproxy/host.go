package noproxy

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// HostASCII converts an international name for lookup (RFC 5891, UTS 46 without transitional mapping), and leaves a
// name in ASCII unchanged. It reports false if IDNA rejects the name.
func HostASCII(name string) (string, bool) {
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

// readPort returns a port without leading zeros. It reports false if text is not a number from 1 to 65535 of at most
// five digits.
func readPort(text string) (string, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return strconv.FormatUint(n, 10), err == nil && n > 0 && len(text) <= len("65535")
}

// Errors of SplitHost. What to do about them depends on what the value is.
var (
	ErrUnclosed = errors.New("the bracket is not closed")
	ErrTrailing = errors.New("there is text after the bracket")
	ErrColons   = errors.New("there are several colons and no brackets")
	ErrPort     = errors.New("the port is not a number from 1 to 65535")
)

// SplitHost separates host and port (RFC 3986 section 3.2). An IPv6 address loses its brackets, and bracketed reports
// that it had some; the text between them is not checked. The port is without leading zeros, "" if there is none. With
// ErrColons, host is text, which may be an IPv6 address.
func SplitHost(text string) (host, port string, bracketed bool, err error) {
	var rest string
	if strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return "", "", true, ErrUnclosed
		}
		host, rest, bracketed = text[1:end], text[end+1:], true
		if rest != "" && rest[0] != ':' {
			return host, "", true, ErrTrailing
		}
	} else {
		colon := strings.IndexByte(text, ':')
		if colon < 0 {
			return text, "", false, nil
		}
		if strings.Contains(text[colon+1:], ":") {
			return text, "", false, ErrColons
		}
		host, rest = text[:colon], text[colon:]
	}
	if rest == "" {
		return host, "", bracketed, nil
	}
	port, ok := readPort(rest[1:])
	if !ok {
		return host, "", bracketed, ErrPort
	}
	return host, port, bracketed, nil
}
