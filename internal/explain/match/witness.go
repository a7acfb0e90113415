package match

import (
	"slices"
	"strconv"
	"strings"
)

// witnesses returns destinations made from the text of a token: the name, a name below it, the addresses at the edges
// of a prefix or range, with and without the ports the text holds. If none of them goes direct because of the token,
// nothing that exists does.
func witnesses(text string) []destination {
	var hosts []string
	core := strings.TrimSpace(text)
	if _, rest, ok := strings.Cut(core, "://"); ok {
		core = rest
	}
	name, port := portSuffix(core)
	for _, s := range []string{core, name} {
		s, _, _ = strings.Cut(s, "/")
		lo, hi, _ := strings.Cut(s, "-")
		for _, h := range []string{s, lo, hi} {
			h = unbracket(strings.TrimSpace(h))
			bare := strings.TrimLeft(h, "*.")
			hosts = append(hosts, h, bare, strings.ToLower(bare), "www."+bare, strings.TrimSuffix(bare, "."))
			if addr, ok := inetAton(bare); ok && strings.Count(bare, ".") == 2 && addr.IsValid() {
				hosts = append(hosts, "10."+bare)
			}
		}
	}
	ports := []string{"", "80", "443"}
	if port > 0 && port <= 65535 {
		ports = append(ports, strconv.Itoa(port))
	}
	var out []destination
	hosts = append(hosts, "example.org", "host")
	slices.Sort(hosts)
	for _, h := range slices.Compact(hosts) {
		if _, ok := pton(h); !ok && (numericTLD(h) || strings.ContainsFunc(h, notHostRune)) {
			continue
		}
		if strings.Contains(h, ":") {
			h = "[" + h + "]"
		}
		for _, p := range ports {
			for _, scheme := range []string{"http://", "https://"} {
				if d, err := parseDestination(strings.TrimSuffix(scheme+h+":"+p, ":")); err == nil {
					out = append(out, d)
				}
			}
		}
	}
	return out
}

// numericTLD reports a name that ends in a label of digits. No such name exists in the DNS (RFC 3696, section 2).
func numericTLD(h string) bool {
	h = strings.TrimSuffix(h, ".")
	return strings.Trim(h[strings.LastIndexByte(h, '.')+1:], "0123456789") == ""
}

// notHostRune reports the ASCII characters that no host name has.
func notHostRune(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return r < 0x80 && !letter && !strings.ContainsRune("-._", r)
}
