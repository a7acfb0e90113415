package match

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// matchAxios follows lib/helpers/shouldBypassProxy.js: prefixes of both families, exact names, suffixes after a leading
// dot or star, addresses in any spelling, and one class for all spellings of loopback.
func matchAxios(list string, d destination, _ Resolver) Answer {
	host, ok := d.whatwg()
	if !ok {
		return refuses("the URL parser does not accept the host")
	}
	if list == "*" {
		return star()
	}
	// axios asks the proxy-from-env package before its own helper. That package has the rules of undici 6.
	if a := (undiciRules{major: 6}).match(list, d, nil); a.Verdict == Direct {
		return a
	}
	host = axiosHost(host)
	port := d.effectivePort()
	return first(jsFields(list), func(t string) bool {
		t = strings.ToLower(t)
		if t == "*" {
			return true
		}
		if p, ok := axiosPrefix(t); ok {
			addr, isAddr := pton(host)
			return isAddr && p.Contains(addr)
		}
		name, want := axiosEntry(t)
		if name = axiosHost(name); name == "" || want != 0 && want != port {
			return false
		}
		name = strings.TrimPrefix(name, "*")
		if strings.HasPrefix(name, ".") {
			return strings.HasSuffix(host, name)
		}
		return host == name || axiosLoopback(host) && axiosLoopback(name)
	})
}

// axiosEntry splits an entry into host and port. Only one colon outside brackets separates a port.
func axiosEntry(t string) (string, int) {
	if end := strings.IndexByte(t, ']'); strings.HasPrefix(t, "[") && end > 0 {
		_, port := portSuffix("x" + t[end+1:])
		return t[1:end], port
	}
	if strings.Count(t, ":") == 1 {
		return portSuffix(t)
	}
	return t, 0
}

// axiosHost normalizes a host or entry: no trailing dots, IPv4 in four decimal parts, mapped addresses as IPv4, IPv6
// compressed, names in ASCII.
func axiosHost(host string) string {
	host = strings.TrimRight(unbracket(host), ".")
	if addr, ok := pton(host); ok {
		return addr.Unmap().String()
	}
	if strings.Contains(host, ".") {
		if addr, ok := inetAton(host); ok {
			return addr.String()
		}
	}
	if name, ok := noproxy.HostASCII(host); ok {
		return name
	}
	return host
}

// axiosPrefix reads "address/length". A prefix of mapped addresses covers nothing, because hosts are unmapped first.
func axiosPrefix(t string) (netip.Prefix, bool) {
	base, length, ok := strings.Cut(t, "/")
	addr, okAddr := pton(unbracket(base))
	n, err := strconv.ParseUint(length, 10, 8)
	if !ok || !okAddr || err != nil || int(n) > addr.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, int(n)), true
}

// axiosLoopback reports the hosts that axios takes as this machine. It counts the unspecified address among them.
func axiosLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, ok := pton(host)
	return ok && (addr.IsLoopback() || addr.IsUnspecified())
}
