package match

import (
	"net"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// goSplit splits like httpproxy: on commas only, spaces around an item removed, empty items skipped.
func goSplit(list string) []token {
	var out []token
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, token{text: item})
		}
	}
	return out
}

// matchGo asks golang.org/x/net/http/httpproxy, the code that net/http carries a copy of.
func matchGo(list string, d destination, _ Resolver) Answer {
	u, err := d.url()
	if err != nil {
		return refuses("net/url does not parse the destination")
	}
	if !goDirect(list, u) {
		return proxied()
	}
	if goDirect("", u) {
		return direct("built-in loopback")
	}
	return first(goSplit(list), func(t string) bool { return goDirect(t, u) })
}

// matchGoLegacy is x/net before 0.36.0, where a name entry also matched the end of an address in text form
// (CVE-2025-22870).
func matchGoLegacy(list string, d destination, r Resolver) Answer {
	a := matchGo(list, d, r)
	if _, err := netip.ParseAddr(d.host); err != nil || a.Verdict != Proxied {
		return a
	}
	host := strings.ToLower(d.host)
	return first(goSplit(list), func(t string) bool {
		t = strings.ToLower(t)
		if _, _, err := net.ParseCIDR(t); err == nil {
			return false
		}
		name, port, err := net.SplitHostPort(t)
		if err != nil {
			name = t
		}
		name = strings.TrimPrefix(name, "*")
		if name == "" || net.ParseIP(name) != nil || port != "" && port != goPort(d) {
			return false
		}
		return strings.HasSuffix(host, "."+strings.TrimPrefix(name, "."))
	})
}

func goPort(d destination) string {
	if d.port != "" {
		return d.port
	}
	if d.scheme == "https" {
		return "443"
	}
	return "80"
}

func goDirect(list string, u *url.URL) bool {
	cfg := httpproxy.Config{HTTPProxy: "http://proxy.invalid", HTTPSProxy: "http://proxy.invalid", NoProxy: list}
	p, err := cfg.ProxyFunc()(u)
	return err == nil && p == nil
}
