package noproxy

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// kind is the kind of a parsed entry.
type kind int

const (
	kindName kind = iota // a name, with or without a leading dot
	kindAddr             // an address without a port
	kindCIDR             // a network
	kindPort             // anything with a port
	kindStar             // the star
)

// parsed is one entry in canonical text.
type parsed struct {
	kind kind
	// values are the canonical forms, first the form that the author wrote. A range has several.
	values []string
	// also are forms that are added for clients that compare literally, unless values[0] is already in the list.
	also []string
	// strict is false if httpx refuses to start with the values: IPv6 networks and bracketed addresses.
	strict   bool
	warnings []finding.Finding
}

// warn adds a warning without a place; the caller knows it.
func (p *parsed) warn(code finding.Code, message, fix string) {
	p.warnings = append(p.warnings, finding.Finding{Code: code, Message: message, Advice: fix})
}

// rejection is a finding about an entry, without a place; the caller knows it.
func rejection(code finding.Code, message, advice string) *finding.Finding {
	f := finding.Rejection(code, finding.Place{}, message, advice)
	return &f
}

// parseEntry reads one non-empty item of a list: a name, an address, a network, a range, each name or address with a
// port if wanted, or "*".
func parseEntry(text string) (parsed, *finding.Finding) {
	if err := checkCharacters(text); err != nil {
		return parsed{}, err
	}
	text = strings.ToLower(text)
	if text == "*" {
		p := parsed{kind: kindStar, values: []string{"*"}, strict: true}
		p.warn(CodeWildcardAlone, "a star bypasses the proxy for every destination and replaces all other entries",
			"list the hosts instead, or use no proxy")
		return p, nil
	}
	if lo, hi, ok := strings.Cut(text, "-"); ok {
		if from, err := netip.ParseAddr(lo); err == nil {
			return parseRange(from.Unmap(), hi)
		}
	}
	if strings.Contains(text, "/") {
		return parseNetwork(text)
	}
	host, port, err := splitPort(text)
	if err != nil {
		return parsed{}, err
	}
	return parseHost(host, port)
}

// checkCharacters rejects characters that no entry may have.
func checkCharacters(text string) *finding.Finding {
	if !utf8.ValidString(text) {
		return rejection(CodeForbiddenCharacter, "the entry is not UTF-8", "write the name in ASCII")
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return rejection(CodeControlCharacter, "the entry has control character "+codePoint(r), "remove it")
		}
	}
	if strings.Contains(text, "://") {
		return rejection(CodeURLEntry, "the entry is a URL", "write only the host name")
	}
	for _, r := range text {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune(".-_:/[]*", r):
		case r >= utf8.RuneSelf && !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r):
		default:
			return rejection(CodeForbiddenCharacter, "the entry has character "+codePoint(r),
				"separate entries by commas and write hosts without quotes, userinfo or zone")
		}
	}
	return nil
}

// codePoint prints a rune without showing it.
func codePoint(r rune) string {
	hex := strings.ToUpper(strconv.FormatInt(int64(r), 16))
	return "U+" + strings.Repeat("0", max(0, 4-len(hex))) + hex
}

// parseRange reads "a-b" whose first end is an address.
func parseRange(from netip.Addr, last string) (parsed, *finding.Finding) {
	to, err := netip.ParseAddr(last)
	if to = to.Unmap(); err != nil || from.Is4() != to.Is4() || to.Less(from) {
		return parsed{}, rejection(CodeBadCIDR, "the range does not run from a lower to a higher address of one family",
			"write both addresses in full, or a network")
	}
	p := parsed{kind: kindCIDR, strict: from.Is4()}
	p.warn(CodeRangeEntry, "only the http module of Node reads ranges; written as networks", "write the networks")
	for _, network := range rangeToCIDRs(from, to) {
		p.addCIDR(network)
	}
	return p, nil
}

// parseNetwork reads "address/length".
func parseNetwork(text string) (parsed, *finding.Finding) {
	network, hostBits, ok := parseCIDR(text)
	if !ok {
		base, length, _ := strings.Cut(text, "/")
		_, err := netip.ParseAddr(strings.Trim(base, "[]"))
		number := length != "" && strings.Trim(length, "0123456789") == ""
		if err != nil && !number && (base == "" || strings.Trim(base, "0123456789.") != "") {
			return parsed{}, rejection(CodeURLEntry, "the entry has a path", "write only the host name")
		}
		return parsed{}, badCIDR(text)
	}
	p := parsed{kind: kindCIDR, strict: network.Addr().Is4()}
	if hostBits {
		p.warn(CodeCIDRHostBits, "bits behind the mask are set; written as the network", "write "+network.String())
	}
	p.addCIDR(network)
	return p, nil
}

// addCIDR adds a network and the findings about it.
func (p *parsed) addCIDR(network netip.Prefix) {
	p.values = append(p.values, network.String())
	switch {
	case network.Bits() == 0:
		p.warn(CodeMatchAllCIDR, "Go bypasses the proxy for every address, curl for only one",
			"write the networks that need no proxy")
	case broadCIDR(network):
		p.warn(CodeOverBroad, "the network is a large part of the address space",
			"write the networks that need no proxy")
	}
}

// splitPort separates host and port. The port is empty if there is none. An IPv6 address loses its brackets.
func splitPort(text string) (host, port string, rejected *finding.Finding) {
	host, port, bracketed, err := SplitHost(text)
	address, addressErr := netip.ParseAddr(host)
	isIPv6 := addressErr == nil && address.Is6()
	switch {
	case errors.Is(err, ErrUnclosed):
		rejected = rejection(CodeBadName, "the bracket is not closed", "write the IPv6 address without brackets")
	case bracketed && !isIPv6:
		rejected = rejection(CodeBadName, "the brackets do not hold an IPv6 address",
			"write names and IPv4 addresses without brackets")
	case errors.Is(err, ErrTrailing):
		rejected = rejection(CodeBadName, "there is text after the bracket", "write the IPv6 address without brackets")
	case errors.Is(err, ErrColons) && !isIPv6:
		rejected = rejection(CodeBadName, "the entry is neither an IPv6 address nor host:port",
			"write [address]:port for IPv6 with a port")
	case errors.Is(err, ErrPort):
		rejected = rejection(CodeBadPort, "the port is not a number from 1 to 65535", "write host:port or only the host")
	default:
		return host, port, nil
	}
	return "", "", rejected
}

// parseHost reads an address or a name; port is empty or canonical.
func parseHost(host, port string) (parsed, *finding.Finding) {
	p := parsed{strict: true}
	bare := strings.TrimSuffix(host, ".")
	if addr, err := netip.ParseAddr(bare); err == nil {
		if bare != host {
			p.warn(CodeTrailingDot, "an address has no trailing dot; it was removed", "remove the dot")
		}
		addr = addr.Unmap()
		p.kind, p.values = kindAddr, []string{addr.String()}
		if addr.Is6() && port == "" {
			p.warn(CodeIPv6Bare, "Go and curl match an IPv6 address only without brackets; urllib, Ruby and undici 7 do "+
				"not match this form; all match a host name", "")
		}
		if addr.Is6() && port != "" {
			p.values[0], p.strict = "["+addr.String()+"]", false
		}
		return p.withPort(port), nil
	}
	if strings.Contains(host, "*") {
		rest, ok := strings.CutPrefix(host, "*.")
		if !ok || strings.Contains(rest, "*") {
			return p, rejection(CodeUnsupportedWildcard, "clients do not expand a star inside an entry",
				"write .name for all names below name, or a network for addresses")
		}
		p.warn(CodeStarDotRewritten, "fewer than half of the clients understand *.name; written as .name",
			"write .name")
		host = "." + rest
	}
	name, dotted := strings.CutPrefix(host, ".")
	if err := p.name(name, dotted); err != nil {
		return p, err
	}
	return p.withPort(port), nil
}

// withPort appends the port to the values.
func (p parsed) withPort(port string) parsed {
	if port == "" {
		return p
	}
	p.kind, p.also = kindPort, nil
	for i := range p.values {
		p.values[i] += ":" + port
	}
	p.warn(CodePortEntry, "curl, wget, aiohttp and LWP never match an entry with a port", "leave the port out")
	return p
}

// name reads a host name without its leading dot. A trailing dot is kept beside the form without it.
func (p *parsed) name(name string, dotted bool) *finding.Finding {
	ascii, err := asciiName(name)
	if err != nil {
		return err
	}
	if ascii != name {
		p.warn(CodeIDNConverted, "the international name is written in its ASCII form", "")
	}
	prefix := ""
	if dotted {
		prefix = "."
	}
	if numeric(ascii) {
		return p.partial(prefix, ascii)
	}
	bare, absolute := strings.CutSuffix(ascii, ".")
	if err := checkName(bare); err != nil {
		return err
	}
	p.values = []string{prefix + bare}
	multi := strings.Contains(bare, ".")
	if !dotted && !multi {
		p.warn(CodeSingleLabel, "a name of one label also covers every name that ends in it", "write the full name")
	}
	if publicSuffix(bare) && (dotted || len(bare) > 2) {
		p.warn(CodeOverBroad, "every name under a public suffix bypasses the proxy",
			"write the domains that need no proxy")
	}
	if !dotted && multi {
		p.also = append(p.also, "."+bare)
	}
	if absolute {
		p.warn(CodeTrailingDot, "most clients compare the trailing dot literally; both forms are written",
			"write the name without the dot")
		p.values = append(p.values, prefix+bare+".")
	}
	return nil
}

// partial reads a name of only digits and dots that is not an address.
func (p *parsed) partial(prefix, text string) *finding.Finding {
	labels := strings.Split(strings.TrimSuffix(text, "."), ".")
	for _, l := range labels {
		if n, err := strconv.ParseUint(l, 10, 32); err != nil || len(labels) > 1 && n > 255 {
			return rejection(CodeBadName, "the entry is neither an address nor a name",
				"write the address in four decimal parts, or a network")
		}
	}
	if len(labels) > 3 {
		return rejection(CodeBadName, "the entry is neither an address nor a name",
			"write the address in four decimal parts, without leading zeros")
	}
	p.values = []string{prefix + text}
	p.warn(CodePartialIP,
		"no client reads part of an address as a network; some compare it with the end of the host name",
		"write address/length")
	return nil
}

// numeric reports text of only digits and dots.
func numeric(s string) bool { return s != "" && strings.Trim(s, "0123456789.") == "" }

// asciiName converts an international name.
func asciiName(name string) (string, *finding.Finding) {
	out, ok := HostASCII(name)
	if !ok || out != name && numeric(out) {
		return "", rejection(CodeBadName, "IDNA does not allow the international name", "write its ASCII form (xn--...)")
	}
	return out, nil
}

// checkName applies RFC 1123, section 2.1, and the lengths of RFC 1035. Underscores are accepted, because hosts with
// them exist.
func checkName(name string) *finding.Finding {
	bad := func(why string) *finding.Finding {
		return rejection(CodeBadName, why, "write a host name such as registry.example.net")
	}
	if len(name) > 253 {
		return bad("the name is longer than 253 characters")
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return bad("the name has an empty label")
		case len(label) > 63:
			return bad("a label is longer than 63 characters")
		case label[0] == '-' || label[len(label)-1] == '-':
			return bad("a label starts or ends with a hyphen")
		case strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			return bad("a label has a character that host names do not have")
		}
	}
	return nil
}

// publicSuffix reports well-known suffixes under which anybody can register a name. It is a hint, not the Public Suffix
// List.
func publicSuffix(name string) bool {
	first, rest, two := strings.Cut(name, ".")
	if !two {
		switch name {
		case "com", "net", "org", "edu", "gov", "mil", "int", "info", "biz", "cloud", "dev", "app":
			return true
		}
		return len(name) == 2
	}
	switch first {
	case "co", "com", "net", "org", "gov", "ac", "edu":
		return len(rest) == 2
	}
	return false
}
