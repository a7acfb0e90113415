package match

import (
	"encoding/binary"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// commaTrimSplit splits on commas, removes spaces around items and skips empty items.
func commaTrimSplit(list string) []token { return goSplit(list) }

// bypassEnvironment follows urllib.request.proxy_bypass_environment of CPython. The host may carry a port.
func bypassEnvironment(list, host string) Answer {
	if list == "*" {
		return star()
	}
	host = strings.ToLower(host)
	bare := host
	if i := strings.LastIndexByte(host, ':'); i >= 0 && i < len(host)-1 && strings.Trim(host[i+1:], "0123456789") == "" {
		bare = host[:i]
	}
	return first(commaTrimSplit(list), func(t string) bool {
		t = strings.ToLower(strings.TrimLeft(t, "."))
		return bare == t || host == t || strings.HasSuffix(bare, "."+t) || strings.HasSuffix(host, "."+t)
	})
}

// matchURLLib models urllib.request, which compares the authority of the URL as written, brackets and userinfo
// included.
func matchURLLib(list string, d destination, _ Resolver) Answer {
	host := d.netloc()
	if d.userinfo != "" {
		host = d.userinfo + "@" + host
	}
	if dec, err := url.PathUnescape(host); err == nil {
		host = dec
	}
	a := bypassEnvironment(list, host)
	if a.Verdict == Proxied && !noproxy.IsASCII(host) {
		return refuses("the request line cannot hold the name")
	}
	return a
}

// matchAIOHTTP models aiohttp with trust_env: the host without port, international names as letters, IPv6 compressed.
func matchAIOHTTP(list string, d destination, _ Resolver) Answer {
	host := d.host
	if d.literal {
		addr, err := netip.ParseAddr(d.host)
		if err != nil {
			return refuses("not an IPv6 address")
		}
		host = hexV6(addr)
	} else {
		ascii, ok := noproxy.HostASCII(host)
		if !ok {
			return refuses("not an international host name")
		}
		host = uLabel(strings.ToLower(ascii))
	}
	return bypassEnvironment(list, host)
}

// requestsSplit removes every space, also inside an item, before it splits.
func requestsSplit(list string) []token {
	var out []token
	for item := range strings.SplitSeq(strings.ReplaceAll(list, " ", ""), ",") {
		if item != "" {
			out = append(out, token{text: item})
		}
	}
	return out
}

// requestsRules are the two generations of requests.
type requestsRules struct {
	boundary bool // from 2.34 on a suffix ends at a label boundary
}

// match follows requests.utils.should_bypass_proxies: IPv4 prefixes for IPv4 hosts, a suffix for other hosts, and then
// the rules of urllib.
func (r requestsRules) match(list string, d destination, _ Resolver) Answer {
	host, ok := noproxy.HostASCII(d.host)
	if !ok {
		return refuses("not an international host name")
	}
	host = strings.ToLower(host)
	withPort := host
	if d.port != "" {
		withPort += ":" + d.port
	}
	addr, isV4 := inetAton(host)
	a := first(requestsSplit(list), func(t string) bool {
		if !isV4 && r.boundary {
			t = strings.TrimLeft(t, ".")
			return host == t || withPort == t || strings.HasSuffix(host, "."+t) || strings.HasSuffix(withPort, "."+t)
		}
		if !isV4 {
			return strings.HasSuffix(host, t) || strings.HasSuffix(withPort, t)
		}
		if network, bits, ok := requestsCIDR(t); ok {
			mask := ^uint32(0) << (32 - bits)
			return v4(addr)&mask == v4(network)&mask
		}
		return host == t
	})
	if a.Verdict == Direct {
		return a
	}
	return bypassEnvironment(list, host)
}

// requestsCIDR follows is_valid_cidr: a prefix of length 0 is none.
func requestsCIDR(t string) (netip.Addr, int, bool) {
	network, bitText, ok := strings.Cut(t, "/")
	bits, err := strconv.Atoi(bitText)
	if !ok || err != nil || bits < 1 || bits > 32 {
		return netip.Addr{}, 0, false
	}
	addr, ok := inetAton(network)
	return addr, bits, ok
}

// v4 returns an IPv4 address as a number.
func v4(addr netip.Addr) uint32 {
	b := addr.As4()
	return binary.BigEndian.Uint32(b[:])
}
