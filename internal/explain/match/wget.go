package match

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// wgetSplit follows sepstring of GNU Wget: commas separate, spaces after a comma are skipped, all other spaces and
// empty items stay.
func wgetSplit(list string) []token {
	if list == "" {
		return nil
	}
	items := strings.Split(list, ",")
	for i := 1; i < len(items); i++ {
		items[i] = strings.TrimLeft(items[i], " \t\n\v\f\r")
	}
	return texts(items)
}

// matchWget follows sufmatch of GNU Wget: the apex and subdomains of a name, only subdomains of a name with a leading
// dot.
func matchWget(list string, d destination, _ Resolver) Answer {
	host, ok := noproxy.HostASCII(d.host)
	if !ok {
		host = d.host
	}
	return first(wgetSplit(list), func(t string) bool {
		if !foldSuffix(host, t) {
			return false
		}
		rest := len(host) - len(t)
		return rest == 0 || host[rest-1] == '.' || t != "" && t[0] == '.'
	})
}

// matchWget2 follows px_manager_is_ignore of libproxy, which Wget2 is built with: no spaces are removed and letter case
// counts.
func matchWget2(list string, d destination, _ Resolver) Answer {
	host, ok := noproxy.HostASCII(d.host)
	if !ok {
		host = d.host
	}
	port := -1
	if d.port != "" {
		port = d.effectivePort()
	}
	return first(texts(strings.Split(list, ",")), func(t string) bool {
		switch {
		case t == "":
			return false
		case t == "*", t == "<local>" && !strings.ContainsAny(host, ":."):
			return true
		}
		return libproxyName(t, host, port) || libproxyAddr(t, host)
	})
}

// libproxyName follows ignore_domain.
func libproxyName(t, host string, port int) bool {
	parts := strings.Split(t, ":")
	name, want := parts[0], -1
	if len(parts) == 2 {
		want = atoi(parts[1])
	}
	hit := host == name
	if !hit && len(name) > 2 {
		switch {
		case name[0] == '.' && (foldPrefix(name[1:], host) || strings.HasSuffix(host, name)),
			strings.HasPrefix(name, "*.") && (foldPrefix(name[2:], host) || strings.HasSuffix(host, name[1:])),
			strings.HasSuffix(host, "."+name):
			hit = true
		}
	}
	return hit && (want == -1 || want == port)
}

// foldPrefix reports whether prefix is a prefix of s without regard to letter case. libproxy compares only as many
// bytes as the host has, so ".svc.cluster.local" covers the host "svc".
func foldPrefix(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// libproxyAddr follows ignore_ip. A prefix with host bits set is not accepted by GLib.
func libproxyAddr(t, host string) bool {
	addr, ok := pton(host)
	if !ok {
		return false
	}
	if network, bits, slash := strings.Cut(t, "/"); slash {
		base, ok := pton(network)
		n, err := strconv.ParseUint(bits, 10, 8)
		if !ok || err != nil {
			return false
		}
		p := netip.PrefixFrom(base, int(n))
		return p.IsValid() && p.Masked() == p && p.Contains(addr)
	}
	other, ok := pton(t)
	return ok && other == addr
}

// wget2Split splits on commas and keeps every item.
func wget2Split(list string) []token { return texts(strings.Split(list, ",")) }
