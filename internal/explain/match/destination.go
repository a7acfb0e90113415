package match

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// destination is the part of a request URL that proxies are chosen by, as written.
type destination struct {
	scheme   string // "http" or "https"
	userinfo string // without "@"
	host     string // without brackets, letter case kept
	literal  bool   // host was in brackets
	port     string // digits, or empty if the URL does not spell a port
}

// parseDestination splits an absolute http or https URL. It does not normalize the host, because every client does that
// its own way.
func parseDestination(raw string) (destination, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	d := destination{scheme: strings.ToLower(scheme)}
	if !ok || d.scheme != "http" && d.scheme != "https" {
		return d, errors.New("not an http or https URL")
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		d.userinfo, rest = rest[:i], rest[i+1:]
	}
	d.host = rest
	if strings.HasPrefix(rest, "[") {
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return d, errors.New("bracket is not closed")
		}
		addr, err := netip.ParseAddr(rest[1:end])
		if err != nil || !addr.Is6() {
			return d, errors.New("brackets do not hold an IPv6 address")
		}
		d.host, d.literal, rest = rest[1:end], true, rest[end+1:]
		if rest != "" && rest[0] != ':' {
			return d, errors.New("text after the bracket is not a port")
		}
		d.port = strings.TrimPrefix(rest, ":")
	} else if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		d.host, d.port = rest[:i], rest[i+1:]
	}
	if d.port != "" {
		if _, err := strconv.ParseUint(d.port, 10, 16); err != nil {
			return d, errors.New("port is not a number up to 65535")
		}
	}
	if d.host == "" {
		return d, errors.New("host is empty")
	}
	if !utf8.ValidString(d.host) || !d.literal && strings.ContainsFunc(d.host, badHostRune) {
		return d, errors.New("host has a character that no host name has")
	}
	return d, nil
}

// badHostRune reports runes that no client takes as part of a host name.
func badHostRune(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune(`:<>[]^|\`, r)
}

// effectivePort returns the port that is dialed.
func (d destination) effectivePort() int {
	if d.port != "" {
		n, _ := strconv.Atoi(d.port) // digits, checked by parseDestination
		return n
	}
	if d.scheme == "https" {
		return 443
	}
	return 80
}

// portUnlessDefault returns the port if the URL spells one other than the default of its scheme, else 0.
func (d destination) portUnlessDefault() int {
	if p := d.effectivePort(); p != 80 && d.scheme == "http" || p != 443 && d.scheme == "https" {
		return p
	}
	return 0
}

// url returns the destination as net/url and net/http see it.
func (d destination) url() (*url.URL, error) { return url.Parse(d.scheme + "://" + d.netloc() + "/") }

// netloc returns the authority as written, without userinfo.
func (d destination) netloc() string {
	host := d.host
	if d.literal {
		host = "[" + host + "]"
	}
	if d.port != "" {
		host += ":" + d.port
	}
	return host
}

// uLabel converts an ASCII form back to letters. A name that cannot be converted is not changed.
func uLabel(name string) string {
	if out, err := idna.ToUnicode(name); err == nil {
		return out
	}
	return name
}

// whatwg returns the host as the URL Standard serializes it: lower case, ASCII, IPv4 numbers in four decimal parts,
// IPv6 compressed and without brackets. It reports false if the standard refuses the host.
// Source: URL Standard, host parsing, which Node implements.
func (d destination) whatwg() (string, bool) {
	if d.literal {
		addr, err := netip.ParseAddr(d.host)
		if err != nil || addr.Zone() != "" {
			return "", false
		}
		return hexV6(addr), true
	}
	host := d.host
	if dec, err := url.PathUnescape(host); err == nil {
		host = dec
	}
	host, ok := noproxy.HostASCII(host)
	if !ok || strings.ContainsFunc(host, badHostRune) || strings.ContainsAny(host, "%/?#@") {
		return "", false
	}
	host = strings.ToLower(host)
	bare := strings.TrimSuffix(host, ".")
	last := bare[strings.LastIndexByte(bare, '.')+1:]
	if last != "" && (strings.Trim(last, "0123456789") == "" || isHex(last)) {
		addr, ok := inetAton(bare)
		return addr.String(), ok
	}
	return host, true
}

func isHex(s string) bool {
	return strings.HasPrefix(s, "0x") && strings.Trim(s[2:], "0123456789abcdef") == ""
}

// hexV6 prints an IPv6 address like the URL Standard, which has no dotted form for mapped addresses.
func hexV6(addr netip.Addr) string {
	if !addr.Is4In6() {
		return addr.String()
	}
	b := addr.As16()
	return "::ffff:" + strconv.FormatUint(uint64(b[12])<<8|uint64(b[13]), 16) + ":" +
		strconv.FormatUint(uint64(b[14])<<8|uint64(b[15]), 16)
}

// inetAton reads an IPv4 address like inet_aton(3): one to four parts, each decimal, octal (0…) or hexadecimal (0x…),
// the last part filling the bytes that remain.
func inetAton(s string) (netip.Addr, bool) {
	parts := strings.Split(strings.ToLower(s), ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var sum uint64
	for i, p := range parts {
		base := 10
		switch {
		case strings.HasPrefix(p, "0x"):
			p, base = p[2:], 16
		case len(p) > 1 && p[0] == '0':
			base = 8
		}
		n, err := strconv.ParseUint(p, base, 32)
		limit := uint64(255)
		if i == len(parts)-1 {
			limit = 1<<(8*(5-len(parts))) - 1
		}
		if err != nil || p[0] == '+' || n > limit {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			sum |= n
		} else {
			sum |= n << (24 - 8*i)
		}
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
}

// pton reads an address like inet_pton(3): the usual text forms only, no zone.
func pton(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	return addr, err == nil && addr.Zone() == ""
}

// foldSuffix is strings.HasSuffix without regard to letter case.
func foldSuffix(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}
