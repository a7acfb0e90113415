package noproxy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// parseCIDR reads "address/length" and returns the network, and whether bits behind the mask were set.
// Mapped IPv6 networks become IPv4. The text may have brackets around the address or around all of it.
func parseCIDR(text string) (network netip.Prefix, hostBits, ok bool) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	text = strings.Replace(text, "]/", "/", 1)
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, false, false
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), p.Masked() != p, true
}

// badCIDR returns why parseCIDR does not accept a text.
func badCIDR(text string) *finding.Finding {
	const form = "write address/length"
	base, length, cut := strings.Cut(strings.Trim(text, "[]"), "/")
	addr, err := netip.ParseAddr(strings.TrimSuffix(base, "]"))
	_, maskErr := netip.ParseAddr(length)
	number, numberErr := strconv.Atoi(length)
	family := "IPv4"
	if addr.Is6() {
		family = "IPv6"
	}
	switch {
	case err != nil && cut:
		return rejection(CodeBadCIDR, "the text before the slash is not an address", "write the address in full")
	case err != nil:
		return rejection(CodeBadCIDR, "the value is not a network", form)
	case length == "":
		return rejection(CodeBadCIDR, "the network has no length", form)
	case maskErr == nil:
		return rejection(CodeBadCIDR, "the network has a netmask", form+", without a port")
	case strings.Contains(length, ":"):
		return rejection(CodeBadCIDR, "the network has a port", form+", without a port")
	case numberErr == nil && number > addr.BitLen():
		return rejection(CodeBadCIDR, fmt.Sprintf("the length of an %s network is at most %d", family, addr.BitLen()), form)
	}
	return rejection(CodeBadCIDR, "the length of the network is not a number without leading zeros", form)
}

// rangeToCIDRs returns the fewest networks that cover exactly the addresses from lo to hi, in order: at most 62 for
// IPv4 and 254 for IPv6. Both must be of one family, and lo must not be behind hi.
func rangeToCIDRs(lo, hi netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for {
		// Grow the network at lo while it starts there and ends before or at hi.
		p := netip.PrefixFrom(lo, lo.BitLen())
		for p.Bits() > 0 {
			wider := netip.PrefixFrom(lo, p.Bits()-1)
			if wider.Masked().Addr() != lo || lastAddr(wider).Compare(hi) > 0 {
				break
			}
			p = wider
		}
		out = append(out, p)
		last := lastAddr(p)
		if last.Compare(hi) >= 0 {
			return out
		}
		lo = last.Next()
	}
}

// lastAddr returns the highest address of a network.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// nth returns the address n places behind the start of a network, if it is inside.
func nth(p netip.Prefix, n int) (netip.Addr, bool) {
	a := p.Addr()
	for range n {
		a = a.Next()
	}
	return a, a.IsValid() && p.Contains(a)
}

// broadCIDR reports networks too wide for an exception: shorter than /8, or for IPv6 shorter than /16 outside the
// unique local and link-local ranges (RFC 4193, RFC 4291).
func broadCIDR(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.Bits() < 8
	}
	private := p.Bits() >= 7 && (p.Addr().IsPrivate() || p.Addr().IsLinkLocalUnicast())
	return p.Bits() < 16 && !private
}
