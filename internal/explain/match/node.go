package match

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// jsFields splits on what \s means in JavaScript and on commas, and drops empty items.
func jsFields(list string) []token {
	return texts(strings.FieldsFunc(list, func(r rune) bool { return r == ',' || jsSpace(r) }))
}

func jsSpace(r rune) bool { return r == 0xfeff || r != 0x85 && unicode.IsSpace(r) }

// portSuffix splits "host:digits" at the last colon. The port is 0 if there is none.
func portSuffix(s string) (string, int) {
	i := strings.LastIndexByte(s, ':')
	if i < 1 || i == len(s)-1 || strings.Trim(s[i+1:], "0123456789") != "" {
		return s, 0
	}
	return s[:i], atoi(s[i+1:])
}

// unbracket removes one pair of brackets around a text that is not empty.
func unbracket(s string) string {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1]
	}
	return s
}

// undiciRules are the generations of EnvHttpProxyAgent.
type undiciRules struct {
	major int
	early bool // major 8 before pull request 5777: a star only alone, and star-dot covers the apex
}

func (u undiciRules) match(list string, d destination, _ Resolver) Answer {
	host, ok := d.whatwg()
	if !ok {
		return refuses("the URL parser does not accept the host")
	}
	if list == "*" {
		return star()
	}
	if d.literal && u.major < 8 {
		host = "[" + host + "]"
	}
	if u.major >= 8 && len(host) > 1 {
		host = strings.TrimSuffix(host, ".")
	}
	test := u.matchV8
	switch u.major {
	case 6:
		test = u.matchV6
	case 7:
		test = u.matchV7
	}
	port := d.effectivePort()
	return first(jsFields(list), func(t string) bool { return test(strings.ToLower(t), host, port) })
}

// matchV6: exact names, and suffixes after a leading dot or star.
func (undiciRules) matchV6(t, host string, port int) bool {
	name, p := portSuffix(t)
	if p != 0 && p != port {
		return false
	}
	if name[0] == '.' || name[0] == '*' {
		return strings.HasSuffix(host, strings.TrimPrefix(name, "*"))
	}
	return host == name
}

// matchV7: a leading dot or star-dot means nothing, the apex and all subdomains match.
func (undiciRules) matchV7(t, host string, port int) bool {
	name, p := portSuffix(t)
	if p != 0 && p != port {
		return false
	}
	name = cutDot(name)
	return host == name || strings.HasSuffix(host, "."+name)
}

// cutDot removes one leading "." or "*.".
func cutDot(name string) string {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		return rest
	}
	return strings.TrimPrefix(name, ".")
}

// matchV8: trailing dots mean nothing, bare IPv6 works, a star matches all hosts, and star-dot leaves the apex out.
func (u undiciRules) matchV8(t, host string, port int) bool {
	name, p := unbracket(t), 0
	if strings.HasPrefix(t, "[") && name == t {
		if h, n := portSuffix(t); n != 0 && unbracket(h) != h {
			name, p = unbracket(h), n
		}
	}
	if p == 0 && strings.Count(name, ":") == 1 {
		name, p = portSuffix(name)
	}
	if p != 0 && p != port {
		return false
	}
	if name == "*" && !u.early {
		return true
	}
	sub := strings.HasPrefix(name, "*.") && !u.early
	name = cutDot(name)
	if len(name) > 1 {
		name = strings.TrimSuffix(name, ".")
	}
	return !sub && host == name || strings.HasSuffix(host, "."+name)
}

// nodeHTTPSplit splits on commas and removes spaces; empty items stay but match nothing.
func nodeHTTPSplit(list string) []token {
	items := strings.Split(list, ",")
	for i, s := range items {
		items[i] = strings.TrimFunc(s, jsSpace)
	}
	return texts(items)
}

// matchNodeHTTP follows ProxyConfig.shouldUseProxy of the node:http and node:https modules.
func matchNodeHTTP(list string, d destination, _ Resolver) Answer {
	host, ok := d.whatwg()
	if !ok {
		return refuses("the URL parser does not accept the host")
	}
	withPort := host + ":" + strconv.Itoa(d.effectivePort())
	addr, isAddr := pton(host)
	return first(nodeHTTPSplit(list), func(t string) bool {
		t = strings.ToLower(t)
		if t == "*" || t == host || t == withPort {
			return true
		}
		if suffix, ok := strings.CutPrefix(t, "."); ok && suffix != "" &&
			(host == suffix || strings.HasSuffix(host, "."+suffix)) {
			return true
		}
		if strings.HasPrefix(t, "*.") && strings.HasSuffix(host, t[1:]) {
			return true
		}
		return isAddr && addr.Is4() && inRange(t, addr)
	})
}

// inRange reads "a-b" with two IPv4 addresses.
func inRange(t string, addr netip.Addr) bool {
	parts := strings.Split(t, "-")
	if len(parts) < 2 {
		return false
	}
	lo, okLo := pton(strings.TrimFunc(parts[0], jsSpace))
	hi, okHi := pton(strings.TrimFunc(parts[1], jsSpace))
	return okLo && okHi && lo.Is4() && hi.Is4() && lo.Compare(addr) <= 0 && addr.Compare(hi) <= 0
}
