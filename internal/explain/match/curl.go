package match

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// curlRules are the differences between the versions of lib/noproxy.c.
type curlRules struct {
	legacy    bool // up to 7.85: no CIDR, nothing normalized, trailing dots compared
	stopBlank bool // from 8.9 on: a space without a comma after it ends the list
	v6        bool // from 8.18 on: IPv6 addresses are compared as addresses
}

// split returns the tokens of the list. Commas and spaces separate; if a space ends the list, the rest is marked
// unread.
func (c curlRules) split(list string) []token {
	blanks := " \t"
	if c.legacy {
		blanks = " "
	}
	var out []token
	unread := false
	for rest := list; ; {
		start := strings.TrimLeft(rest, blanks+",")
		if len(out) > 0 && c.stopBlank && !strings.Contains(rest[:len(rest)-len(start)], ",") {
			unread = true
		}
		if start == "" {
			return out
		}
		end := strings.IndexAny(start, blanks+",")
		if end < 0 {
			end = len(start)
		}
		out = append(out, token{text: start[:end], unread: unread})
		rest = start[end:]
	}
}

// match follows Curl_check_noproxy.
func (c curlRules) match(list string, d destination, _ Resolver) Answer {
	if list == "*" {
		return star()
	}
	host, addr, ok := c.host(d)
	if !ok {
		return refuses("not an international host name")
	}
	return first(c.split(list), func(t string) bool {
		if addr.IsValid() {
			return c.matchAddr(t, addr)
		}
		return c.matchName(t, host)
	})
}

// host returns the name to compare, or a valid address if this version compares addresses.
func (c curlRules) host(d destination) (string, netip.Addr, bool) {
	if c.legacy {
		return d.host, netip.Addr{}, true
	}
	if d.literal {
		addr, err := netip.ParseAddr(d.host)
		if err != nil {
			return "", addr, false
		}
		addr = addr.WithZone("")
		if c.v6 {
			return "", addr, true
		}
		// The URL parser keeps the text unless the normalized form is shorter.
		if norm := addr.String(); len(norm) < len(d.host) {
			return norm, netip.Addr{}, true
		}
		return d.host, netip.Addr{}, true
	}
	if addr, ok := inetAton(d.host); ok {
		return "", addr, true
	}
	name, ok := noproxy.HostASCII(d.host)
	return strings.TrimSuffix(name, "."), netip.Addr{}, ok
}

// matchName compares a name: a leading dot means nothing, the apex and every subdomain match.
func (c curlRules) matchName(t, name string) bool {
	if !c.legacy {
		t = strings.TrimSuffix(t, ".")
	}
	t = strings.TrimPrefix(t, ".")
	if len(t) == len(name) {
		return strings.EqualFold(t, name)
	}
	return len(t) < len(name) && name[len(name)-len(t)-1] == '.' && foldSuffix(name, t)
}

// matchAddr compares an address with an address or prefix. A prefix of length 0 means the one address.
func (c curlRules) matchAddr(t string, addr netip.Addr) bool {
	if len(t) >= 128 {
		return false
	}
	network, bitText, slash := strings.Cut(t, "/")
	check, ok := pton(network)
	if !ok || check.Is4() != addr.Is4() {
		return false
	}
	bits := 0
	if slash {
		if c.v6 {
			n, err := strconv.ParseUint(bitText, 10, 8)
			if err != nil || n > 128 {
				return false
			}
			bits = int(n)
		} else {
			bits = atoi(bitText)
		}
	}
	if bits == 0 {
		bits = addr.BitLen()
	}
	p, err := check.Prefix(bits)
	return err == nil && p.Contains(addr)
}

// atoi reads like atoi(3): an optional sign and the digits at the start; anything else is 0. Values above 999 are cut
// there.
func atoi(s string) int {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	sign := 1
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
	}
	n := 0
	for i := 0; i < len(s) && '0' <= s[i] && s[i] <= '9' && n < 1000; i++ {
		n = n*10 + int(s[i]-'0')
	}
	return sign * n
}
