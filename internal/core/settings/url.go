package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// URL is a validated proxy URL: scheme, optional userinfo, host and optional port, nothing else. It formats itself with
// the userinfo replaced by xxxxx, as a token often stands where a user should; Reveal is the only way to get the whole
// text.
type URL struct {
	scheme   string
	userinfo string // percent-encoded, as in the URL
	host     string // lower case; an IPv6 address is in brackets
	port     string // "" if the Secret gave none
}

// IsSet reports whether u is a URL at all.
func (u URL) IsSet() bool { return u.host != "" }

// HostPort returns the host, an IPv6 address without brackets, and the port, 80 or 443 if the Secret gave none.
func (u URL) HostPort() (host string, port int) {
	if port, _ = strconv.Atoi(u.port); port == 0 { // a port is valid if there is one
		if port = 80; u.scheme == "https" {
			port = 443
		}
	}
	return strings.Trim(u.host, "[]"), port
}

// HasCredentials reports whether u carries a user or a password.
func (u URL) HasCredentials() bool { return u.userinfo != "" }

// Reveal returns the whole URL with its credentials. It belongs in a Secret and nowhere else.
func (u URL) Reveal() string {
	if !u.IsSet() {
		return ""
	}
	text := u.scheme + "://"
	if u.userinfo != "" {
		text += u.userinfo + "@"
	}
	text += u.host
	if u.port != "" {
		text += ":" + u.port
	}
	return text
}

// String returns the URL with the userinfo replaced by xxxxx.
func (u URL) String() string { return u.redacted().Reveal() }

// Format implements fmt.Formatter, so that no verb reaches the userinfo.
func (u URL) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(u.String())) }

// MarshalText implements encoding.TextMarshaler with the text of String.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

func (u URL) redacted() URL {
	if u.HasCredentials() {
		u.userinfo = "xxxxx"
	}
	return u
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isUnreserved reports whether c is an unreserved character of RFC 3986 section 2.3.
func isUnreserved(c byte) bool { return isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// notURLs is what people write in place of a URL. Advice to add a scheme, or to cut a path, would make a URL of it that
// looks right and names no proxy. What stands before an @ may be a password, and decides nothing.
var notURLs = []struct { //nolint:gochecknoglobals // a constant
	pattern         *regexp.Regexp
	message, advice string
}{
	{ // a path that names a PAC file, or a host that does and a path
		regexp.MustCompile(`(?i)^(file|data):|\.pac$|^([a-z0-9+.-]+://)?([^/?#]*@)?([^@/?#:]*(:[0-9]+)?[/?#][^@]*` +
			`((\b|_)pac\b|wpad|autoconf|\.dat\b|\.js\b)|(wpad|pac)\b[^@/?#:]*(:[0-9]+)?[/?#][^@])[^@]*$`),
		"a PAC file, not a proxy", "write the proxy that it names for the internet (docs/scope.md#pac-files)",
	},
	{
		regexp.MustCompile(`(?i)^((DIRECT|PROXY|HTTPS?|SOCKS[45]?)([\s;].*)?|none|no|off|false|null|disabled|auto|system)$`),
		"DIRECT, PROXY or a like word, not a URL", "write http://host:port; hosts without a proxy belong into noProxy",
	},
	{
		regexp.MustCompile(`(?s)://.*://|^([^/?#]*://)?([^/?#]*@)?[^@/?#]*[,;|][^@]*$|@[^@]*:[0-9]+[,;|]`),
		"a list, where there can be one URL only", "write one; a proxy can choose between others (docs/scope.md#pac-files)",
	},
	{regexp.MustCompile("^\\\\?[\"'`“”‘’«»]|[\"'`“”‘’«»]$"), "quotes inside the value", "remove them"},
	{regexp.MustCompile(`(?i)^socks\w*:`), "a SOCKS proxy", "name an HTTP proxy (docs/scope.md#socks-and-ntlm-proxies)"},
	{regexp.MustCompile(`(?i)^https?[:/]/?[^/]`), "no :// after the scheme", "write http://host:port"},
}

// parseURL reads an http or https proxy URL. An empty text is the unset URL. It is stricter than net/url where clients
// disagree: what one client repairs makes another silently bypass the proxy (docs/no-proxy.md).
func parseURL(key, text string) (URL, *finding.Finding) {
	if text == "" {
		return URL{}, nil
	}
	bad := func(message, advice string) (URL, *finding.Finding) {
		return URL{}, rejection(noproxy.CodeBadProxyURL, key, message, advice)
	}
	for _, not := range notURLs {
		if not.pattern.MatchString(text) {
			return bad(not.message, not.advice)
		}
	}
	for i := range len(text) {
		if text[i] < 0x20 || text[i] == 0x7f {
			return bad("a control character", "write the URL on one line")
		}
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found || strings.ContainsAny(scheme, "/@?#") {
		return bad("the scheme is missing", "write http:// or https:// in front")
	}
	scheme = strings.ToLower(scheme)
	if scheme != "http" && scheme != "https" {
		return bad("the scheme is unknown", "use http:// or https://, which is how the proxy itself is reached")
	}

	const encode = "percent-encode it in the URL, or " +
		"put the unencoded user and password into the keys username and password"
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		tail := rest[end:]
		authority = rest[:end]
		if strings.Contains(tail, "@") {
			return bad("unescaped /, ? or # in user or password", encode)
		}
		if tail != "/" { // a lone slash is the empty path (RFC 3986 section 6.2.3)
			return bad("a path, query or fragment", "write the proxy's own host and port alone, not the address of a file")
		}
	}
	u := URL{scheme: scheme}
	hostport := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		u.userinfo, hostport = authority[:at], authority[at+1:]
		if why := checkUserinfo(u.userinfo); why != "" {
			return bad(why, encode)
		}
	}
	host, port, why := splitHostPort(hostport)
	if why == "" {
		u.host, why = canonicalHost(host)
	}
	if why != "" {
		return bad(why, "write a host name or an address, for example http://proxy.example.com:3128")
	}
	u.port = port
	return u, nil
}

// checkUserinfo checks userinfo against RFC 3986 section 3.2.1 and returns the problem, or "".
func checkUserinfo(userinfo string) string {
	if userinfo == "" || userinfo == ":" {
		return "an empty user and password before the @"
	}
	for i := 0; i < len(userinfo); i++ {
		c := userinfo[i]
		switch {
		case isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:", c) >= 0:
		case c == '%' && i+2 < len(userinfo) && isHex(userinfo[i+1]) && isHex(userinfo[i+2]):
			i += 2
		case c == '%':
			return "a raw % in the user or password"
		case c == ' ':
			return "a raw space in the user or password"
		case c == '@':
			return "a raw @ in the user or password"
		default:
			return "a raw character in the user or password that a URL cannot hold"
		}
	}
	return ""
}

// splitHostPort separates host and port; an IPv6 address keeps its brackets.
func splitHostPort(hostport string) (host, port, why string) {
	host, port, bracketed, err := noproxy.SplitHost(hostport)
	switch {
	case errors.Is(err, noproxy.ErrUnclosed):
		return "", "", "an IPv6 address without its closing bracket"
	case errors.Is(err, noproxy.ErrTrailing):
		return "", "", "text between the IPv6 address and the port"
	case errors.Is(err, noproxy.ErrColons):
		return "", "", "an IPv6 address without brackets"
	case err != nil:
		return "", "", "a port that is not a number from 1 to 65535"
	case bracketed:
		host = "[" + host + "]"
	}
	return host, port, ""
}

// canonicalHost lower-cases a host, converts an internationalized name to its A-label form (RFC 5891) and writes
// addresses in their canonical text.
func canonicalHost(host string) (canonical, why string) {
	if strings.HasPrefix(host, "[") {
		address, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil || address.Zone() != "" || !address.Is6() {
			return "", "an IPv6 address that cannot be parsed"
		}
		return "[" + address.String() + "]", ""
	}
	if host == "" {
		return "", "the host is missing"
	}
	if strings.Trim(host, "0123456789.") == "" {
		address, err := netip.ParseAddr(host)
		if err != nil {
			return "", "an IPv4 address that cannot be parsed"
		}
		return address.String(), ""
	}
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(host, "."))
	if err == nil && ascii != host && ascii+"." != host { // not every result of a conversion is a name itself
		return canonicalHost(ascii)
	}
	if err != nil && strings.Contains(host, "_") { // legal in DNS and in use, though not in host names
		ascii, err = strings.ToLower(strings.TrimSuffix(host, ".")), nil
	}
	if err != nil || len(ascii) > 253 || !utf8.ValidString(host) {
		return "", "a host that is not a DNS name"
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if label == "" || len(label) > 63 {
			return "", "a host that is not a DNS name"
		}
		for i := range len(label) {
			if c := label[i]; !isAlphanumeric(c) && c != '-' && c != '_' {
				return "", "a host that is not a DNS name"
			}
		}
	}
	return ascii, ""
}

// urlWarnings are the warnings about a URL.
func urlWarnings(key string, data map[string][]byte, u URL) []finding.Finding {
	if trim(data[key]) == "" || !u.IsSet() {
		return nil
	}
	var warnings []finding.Finding
	if u.port == "" {
		warnings = append(warnings, finding.Finding{
			Code: CodeProxyPort, Place: finding.Key(key),
			Message: "the proxy has no port; curl takes 1080, Go and most others 80 or 443",
			Advice:  "write the port",
		})
	}
	address, err := netip.ParseAddr(strings.Trim(u.host, "[]"))
	if u.host == "localhost" || strings.HasSuffix(u.host, ".localhost") || err == nil && address.Unmap().IsLoopback() {
		warnings = append(warnings, finding.Finding{
			Code: noproxy.CodeLoopbackProxy, Place: finding.Key(key),
			Message: "the proxy is on the loopback interface, so every node must run its own",
			Advice:  "write the host by which nodes reach the proxy",
		})
	}
	return warnings
}
