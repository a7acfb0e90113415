package match

import (
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// httpxPattern is a URLPattern of httpx: entries become URL patterns that mount "no proxy".
type httpxPattern struct {
	scheme string // empty for all
	host   string // "*name": name and subdomains, "*.name": subdomains, else exact; empty for any
	port   int    // -1 for any
}

// matches follows URLPattern.matches. A pattern with neither host nor port sorts behind the proxies and is never
// reached.
func (p httpxPattern) matches(scheme, host string, port int) bool {
	if p.host == "" && p.port < 0 || p.scheme != "" && p.scheme != scheme || p.port >= 0 && p.port != port {
		return false
	}
	switch {
	case p.host == "":
		return true
	case strings.HasPrefix(p.host, "*."):
		return len(host) >= len(p.host) && strings.HasSuffix(host, p.host[1:])
	case strings.HasPrefix(p.host, "*"):
		name := p.host[1:]
		return host == name || len(host) > len(name)+1 && strings.HasSuffix(host, "."+name)
	}
	return host == p.host
}

// httpxRules are the two generations of httpx. Up to 0.24 URLs are parsed by the rfc3986 package and every entry is a
// name; later httpx has its own parser, knows addresses and URLs as entries, and raises an error for entries that it
// cannot parse.
type httpxRules struct{ legacy bool }

func (h httpxRules) match(list string, d destination, _ Resolver) Answer {
	tokens := commaTrimSplit(list)
	patterns := make([]httpxPattern, len(tokens))
	for i, t := range tokens {
		if t.text == "*" {
			return Answer{Verdict: Direct, Entry: i, Token: "*", Reason: "a star anywhere removes all proxies"}
		}
		p, ok := h.pattern(t.text)
		if !ok {
			return Answer{Verdict: Refuses, Entry: i, Token: t.text, Reason: "the client raises when it is constructed"}
		}
		patterns[i] = p
	}
	host, ok := h.host(d)
	if !ok {
		return refuses("the client does not parse the host")
	}
	port := d.portUnlessDefault()
	if port == 0 {
		port = -2 // equals no pattern
	}
	for i, p := range patterns {
		if p.matches(d.scheme, host, port) || !h.legacy && tokens[i].text == d.scheme+"://" {
			return Answer{Verdict: Direct, Entry: i, Token: tokens[i].text, Reason: "entry matches"}
		}
	}
	return proxied()
}

// pattern follows get_environment_proxies and the parser behind it. It reports false if the client raises.
func (h httpxRules) pattern(t string) (httpxPattern, bool) {
	if h.legacy {
		return legacyPattern("*" + t)
	}
	base, _, _ := strings.Cut(t, "/")
	addr, isAddr := pton(base)
	switch {
	case strings.Contains(t, "://"):
		scheme, rest, _ := strings.Cut(t, "://")
		if scheme = strings.ToLower(scheme); scheme == "all" {
			scheme = ""
		}
		p, ok := modernPattern(rest)
		p.scheme = scheme
		if port, known := map[string]int{"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}[scheme]; known &&
			p.port == port {
			p.port = -1
		}
		return p, ok
	case isAddr && addr.Is4(), strings.EqualFold(t, "localhost"):
		return modernPattern(t)
	case isAddr:
		return modernPattern("[" + t + "]")
	}
	return modernPattern("*" + t)
}

// modernPattern parses the part of a URL behind "://" like httpx._urlparse.
func modernPattern(authority string) (httpxPattern, bool) {
	p := httpxPattern{port: -1}
	for i := range len(authority) {
		if c := authority[i]; c < ' ' || c == 0x7f {
			return p, false
		}
	}
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	host, rest := authority, ""
	if end := strings.LastIndexByte(authority, ']'); strings.HasPrefix(authority, "[") && end > 0 {
		host, rest = authority[:end+1], authority[end+1:]
	} else if i := strings.IndexByte(authority, ':'); i >= 0 {
		host, rest = authority[:i], authority[i:]
	}
	if rest = strings.TrimPrefix(rest, ":"); rest != "" {
		n, err := strconv.Atoi(rest)
		if err != nil {
			return p, false
		}
		p.port = n
	}
	host, ok := modernHost(host)
	if host != "*" {
		p.host = host
	}
	return p, ok
}

// modernHost follows encode_host and URL.host: names starting with an A-label are compared as letters.
func modernHost(host string) (string, bool) {
	switch {
	case strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]"):
		addr, ok := pton(host[1 : len(host)-1])
		return host[1 : len(host)-1], ok && addr.Is6()
	case looksV4(host):
		_, ok := pton(host)
		return host, ok
	case !noproxy.IsASCII(host):
		if strings.Contains(host, "*") {
			return "", false
		}
		ascii, ok := noproxy.HostASCII(strings.ToLower(host))
		if !ok {
			return "", false
		}
		host = ascii
	}
	host = strings.ToLower(host)
	if strings.HasPrefix(host, "xn--") {
		host = uLabel(host)
	}
	return host, true
}

// looksV4 reports four groups of digits, whatever their size.
func looksV4(host string) bool {
	parts := strings.Split(host, ".")
	for _, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			return false
		}
	}
	return len(parts) == 4
}

// legacyPattern parses "*entry" like the rfc3986 package: an authority outside the grammar gives an empty host, which
// matches nothing here.
func legacyPattern(authority string) (httpxPattern, bool) {
	p := httpxPattern{port: -1}
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	if user, host, ok := strings.Cut(authority, "@"); ok && !strings.ContainsFunc(user, badRegName) {
		authority = host
	}
	host, port, hasPort := strings.Cut(authority, ":")
	if strings.ContainsFunc(host, badRegName) || len(port) > 5 || strings.Trim(port, "0123456789") != "" {
		return p, true
	}
	if hasPort && port != "" {
		p.port = atoi(port)
	}
	labels := strings.Split(host, ".")
	for i, label := range labels {
		if noproxy.IsASCII(label) {
			continue
		}
		ascii, ok := noproxy.HostASCII(strings.ToLower(label))
		if !ok || strings.ContainsAny(label, "*_") {
			return p, false
		}
		labels[i] = ascii
	}
	if host = strings.ToLower(strings.Join(labels, ".")); host != "*" {
		p.host = host
	}
	return p, true
}

// badRegName reports runes outside the reg-name of RFC 3986 as extended by RFC 3987.
func badRegName(r rune) bool {
	switch {
	case r >= 0xa0, '0' <= r && r <= '9', 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
		return false
	}
	return !strings.ContainsRune("-._~!$&'()*+,;=%", r)
}

// host returns URL.host of the request.
func (h httpxRules) host(d destination) (string, bool) {
	switch {
	case d.literal && h.legacy:
		return strings.ToLower(d.host), true
	case d.literal:
		return d.host, true
	case !h.legacy:
		return modernHost(d.host)
	}
	ascii, ok := noproxy.HostASCII(d.host)
	ascii = strings.ToLower(ascii)
	if strings.HasPrefix(ascii, "xn--") {
		ascii = uLabel(ascii)
	}
	return ascii, ok
}
