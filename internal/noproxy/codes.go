package noproxy

import (
	"errors"
	"fmt"
)

// Code names one kind of finding. Codes are stable: conditions, lint output and tests refer to them.
type Code string

// Rejections. A value with one of these is not composed.
const (
	// CodeBadCIDR is a network or range that is not one: bad length, a netmask, a port behind it, ends in the wrong order.
	CodeBadCIDR Code = "bad-cidr"
	// CodeBadPort is a port that is not a number from 1 to 65535.
	CodeBadPort Code = "bad-port"
	// CodeUnsupportedWildcard is a star in a place other than alone or in front of a dot. Hardly any client gives it a meaning.
	CodeUnsupportedWildcard Code = "unsupported-wildcard"
	// CodeControlCharacter is a control character inside a value.
	CodeControlCharacter Code = "control-character"
	// CodeForbiddenCharacter is a character that means something to a shell, to systemd or to a URL, or an invisible one.
	CodeForbiddenCharacter Code = "forbidden-character"
	// CodeURLEntry is an entry with a scheme or a path.
	CodeURLEntry Code = "url-entry"
	// CodeTooLong is a value that does not fit into one environment string. Linux limits name, equals sign, value and NUL to
	// 131,072 bytes together (MAX_ARG_STRLEN, execve(2)); a service with a longer one does not start.
	CodeTooLong Code = "too-long"
	// CodeBadProxyURL is a proxy URL that clients do not parse. The composer does not report it; package proxyconfig does.
	CodeBadProxyURL Code = "bad-proxy-url"
	// CodeBadName is a host name that the DNS or IDNA does not allow (RFC 1123 section 2.1, RFC 5891).
	CodeBadName Code = "bad-name"
)

// Warnings. They report and never change what is composed.
const (
	// CodePortEntry is an entry with a port, which curl, wget, aiohttp and LWP never match.
	CodePortEntry Code = "port-entry"
	// CodeWildcardAlone is a star: the value becomes exactly "*", and wget, Ruby, LWP and busybox still use the proxy.
	CodeWildcardAlone Code = "wildcard-alone"
	// CodeStarDotRewritten is "*.name", written as ".name", which more clients understand.
	CodeStarDotRewritten Code = "star-dot-rewritten"
	// CodeTrailingDot is a name with a dot at the end. Most clients compare it literally, so both forms are written.
	CodeTrailingDot Code = "trailing-dot"
	// CodeIPv6CIDR is an IPv6 network. Go needs it; httpx 0.28 refuses to start with it.
	CodeIPv6CIDR Code = "ipv6-cidr"
	// CodeIPv6Bare is an IPv6 address without brackets, the form of Go and curl; urllib, Ruby and undici 7 do not match it.
	CodeIPv6Bare Code = "ipv6-bare"
	// CodeRangeEntry is "a-b", written as networks. Only the http module of Node reads ranges.
	CodeRangeEntry Code = "range-entry"
	// CodeSingleLabel is a name without a dot. It also covers every name that ends in it.
	CodeSingleLabel Code = "single-label"
	// CodeIDNConverted is an international name, written in its ASCII form.
	CodeIDNConverted Code = "idn-converted"
	// CodeCIDRHostBits is a network with bits behind the mask, written as the network.
	CodeCIDRHostBits Code = "cidr-host-bits"
	// CodeMatchAllCIDR is a network of length 0. It means every address to Go and one address to curl.
	CodeMatchAllCIDR Code = "match-all-cidr"
	// CodeOverBroad is an entry that takes a large part of the internet off the proxy.
	CodeOverBroad Code = "over-broad"
	// CodeSize is a value of 8 KiB or more. It is part of user data, which some clouds limit to 16 KiB.
	CodeSize Code = "size"
	// CodeLoopbackProxy is a proxy on a loopback address. The composer does not report it; package proxyconfig does.
	CodeLoopbackProxy Code = "loopback-proxy"
	// CodeDefaultsUsed is a field that the Cluster leaves empty and that kubeadm fills.
	CodeDefaultsUsed Code = "defaults-used"
	// CodePartialIP is the beginning or end of an IPv4 address. No client reads it as a network.
	CodePartialIP Code = "partial-ip"
	// CodeEndpointUnset is a Cluster without a control plane endpoint yet.
	CodeEndpointUnset Code = "endpoint-unset"
	// CodeBadServiceCIDR is a Service network that Kubernetes cannot use as such, for example one too small for the DNS address.
	CodeBadServiceCIDR Code = "bad-service-cidr"
)

// Codes returns all codes, rejections first.
func Codes() []Code {
	return []Code{
		CodeBadCIDR, CodeBadPort, CodeUnsupportedWildcard, CodeControlCharacter, CodeForbiddenCharacter, CodeURLEntry, CodeTooLong,
		CodeBadProxyURL, CodeBadName,
		CodePortEntry, CodeWildcardAlone, CodeStarDotRewritten, CodeTrailingDot, CodeIPv6CIDR, CodeIPv6Bare, CodeRangeEntry,
		CodeSingleLabel, CodeIDNConverted, CodeCIDRHostBits, CodeMatchAllCIDR, CodeOverBroad, CodeSize, CodeLoopbackProxy,
		CodeDefaultsUsed, CodePartialIP, CodeEndpointUnset, CodeBadServiceCIDR,
	}
}

// IsUsual reports whether warnings of a code are about what most Clusters look like, and nobody has to change it: fields that
// Cluster API and kubeadm fill, some of them later.
func (c Code) IsUsual() bool { return c == CodeDefaultsUsed || c == CodeEndpointUnset }

// Error is one rejected piece of input. It names the place and never holds the text found there, which may be a credential.
type Error struct {
	// Code is one of the rejections.
	Code Code
	// Where is the object, key and entry position (counted from 1), or the field of the Cluster.
	Where string
	// Why says what is wrong.
	Why string
	// Fix says what to write instead. It may be empty.
	Fix string
}

// Error returns one line that is the same for the same input.
func (e *Error) Error() string {
	s := fmt.Sprintf("parsing %s: %s (%s)", e.Where, e.Why, e.Code)
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Errors returns every *Error in err in input order, looking through wrapped and joined errors.
func Errors(err error) []*Error {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by hand to find all of them, not the first
	case nil:
		return nil
	case *Error:
		return []*Error{e}
	case interface{ Unwrap() []error }:
		var all []*Error
		for _, sub := range e.Unwrap() {
			all = append(all, Errors(sub)...)
		}
		return all
	}
	return Errors(errors.Unwrap(err))
}

// Warning is something in the input that works differently from what its author may expect.
type Warning struct {
	// Code is one of the warnings.
	Code Code
	// Where is the object, key and entry position (counted from 1), or the field of the Cluster.
	Where string
	// Message says what is the case.
	Message string
	// Fix says what to write instead. It may be empty.
	Fix string
}

// String returns the warning in one line, with its code first.
func (w Warning) String() string {
	text := string(w.Code) + ": " + w.Where + ": " + w.Message
	if w.Fix != "" {
		text += "; " + w.Fix
	}
	return text
}
