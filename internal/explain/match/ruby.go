package match

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// rubyRules are the two generations of the ipaddr library behind URI::Generic#find_proxy.
type rubyRules struct {
	mapped bool // up to Ruby 2.7 an IPv4 prefix also covers ::ffff: addresses
}

// rubySplit follows the scan for ([^:,\s]+)(?::(\d+))? in use_proxy?: every colon separates, so IPv6 addresses fall
// into pieces.
func rubySplit(list string) []token {
	var out []token
	sep := func(r rune) bool { return r == ':' || r == ',' || unicode.IsSpace(r) }
	for rest := list; ; {
		rest = strings.TrimLeftFunc(rest, sep)
		if rest == "" {
			return out
		}
		end := strings.IndexFunc(rest, sep)
		if end < 0 {
			end = len(rest)
		}
		if end < len(rest) && rest[end] == ':' {
			digits := len(rest[end+1:]) - len(strings.TrimLeft(rest[end+1:], "0123456789"))
			if digits > 0 {
				end += 1 + digits
			}
		}
		out = append(out, token{text: rest[:end]})
		rest = rest[end:]
	}
}

// match follows find_proxy and use_proxy?. It is the only matcher that needs the address of a name.
func (ru rubyRules) match(list string, d destination, resolve Resolver) Answer {
	if !noproxy.IsASCII(d.host) {
		return refuses("URI does not parse the name")
	}
	addr, known, open := ru.resolve(d, resolve)
	if known && addr.Is4() && addr.As4()[0] == 127 || known && addr == netip.IPv6Loopback() {
		return direct("resolves to loopback")
	}
	host := strings.ToLower(d.host)
	dotted := "." + host
	port := d.effectivePort()
	for i, t := range rubySplit(list) {
		name, p, hasPort := strings.Cut(t.text, ":")
		if n, err := strconv.Atoi(p); hasPort && (err != nil || n != port) {
			continue
		}
		name = strings.ToLower(name)
		if strings.HasPrefix(name, ".") && strings.HasSuffix(host, name) || strings.HasSuffix(dotted, "."+name) {
			return Answer{Verdict: Direct, Entry: i, Token: t.text, Reason: "entry matches"}
		}
		prefix, ok := rubyPrefix(name)
		if !ok {
			continue
		}
		if open {
			if addr := prefix.Addr(); addr.IsLoopback() && prefix.Bits() >= 8 {
				continue // decided: a name with such an address is direct without the entry
			}
			return ru.undecided(list, d, i, t.text)
		}
		if ru.mapped {
			addr = addr.Unmap()
		}
		if known && prefix.Contains(addr) {
			return Answer{Verdict: Direct, Entry: i, Token: t.text, Reason: "the address of the host matches"}
		}
	}
	return proxied()
}

// undecided is the answer when token i may cover the unknown address of the host, unless a later token covers the name
// anyway.
func (ru rubyRules) undecided(list string, d destination, i int, text string) Answer {
	nowhere := func(string) (netip.Addr, bool) { return netip.Addr{}, false }
	if a := ru.match(list, d, nowhere); a.Verdict == Direct {
		return a
	}
	return Answer{Verdict: DependsOnDNS, Entry: i, Token: text, Reason: "the address of the host may match"}
}

// resolve returns the address of the host. open is true if the host is a name whose address is not known.
func (rubyRules) resolve(d destination, resolve Resolver) (addr netip.Addr, known, open bool) {
	if a, ok := pton(d.host); ok {
		return a, true, false
	}
	if a, ok := inetAton(d.host); ok && !d.literal {
		return a, true, false
	}
	if resolve != nil {
		a, ok := resolve(d.host)
		return a, ok, false
	}
	if strings.EqualFold(d.host, "localhost") { // RFC 6761, section 6.3
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true, false
	}
	return addr, false, true
}

// rubyPrefix reads what IPAddr.new accepts and a colon-free token can hold: IPv4 with an optional length or mask.
func rubyPrefix(s string) (netip.Prefix, bool) {
	text, mask, slash := strings.Cut(s, "/")
	addr, ok := pton(text)
	if !ok || !addr.Is4() {
		return netip.Prefix{}, false
	}
	bits := 32
	if slash {
		n, err := strconv.ParseUint(mask, 10, 8)
		bits = int(n)
		if m, ok := pton(mask); err != nil && ok && m.Is4() {
			bits, err = maskBits(v4(m)), nil
		}
		if err != nil {
			return netip.Prefix{}, false
		}
	}
	p, err := addr.Prefix(bits)
	return p, err == nil
}

// maskBits returns the length of a netmask, or -1 if its ones are not all in front.
func maskBits(m uint32) int {
	n := 0
	for ; m&(1<<31) != 0; m <<= 1 {
		n++
	}
	if m != 0 {
		return -1
	}
	return n
}
