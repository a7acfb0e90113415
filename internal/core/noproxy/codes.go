package noproxy

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"

// Codes of rejections. A value with one of these is not composed.
const (
	// CodeBadCIDR is an invalid network or range: bad length, a netmask, a port after it, ends in the wrong order.
	CodeBadCIDR finding.Code = "bad-cidr"
	// CodeBadPort is a port that is not a number from 1 to 65535.
	CodeBadPort finding.Code = "bad-port"
	// CodeUnsupportedWildcard is a star that is neither alone nor in front of a dot. Hardly any client supports it.
	CodeUnsupportedWildcard finding.Code = "unsupported-wildcard"
	// CodeControlCharacter is a control character inside a value.
	CodeControlCharacter finding.Code = "control-character"
	// CodeForbiddenCharacter is a character with a meaning in a shell, in systemd or in a URL, or an invisible one.
	CodeForbiddenCharacter finding.Code = "forbidden-character"
	// CodeURLEntry is an entry with a scheme or a path.
	CodeURLEntry finding.Code = "url-entry"
	// CodeTooLong is a value that does not fit into one environment string. Linux limits name, equals sign, value and
	// NUL to 131,072 bytes together (MAX_ARG_STRLEN, execve(2)); a service with a longer one does not start.
	CodeTooLong finding.Code = "too-long"
	// CodeBadProxyURL is a proxy URL that clients do not parse. The composer does not report it; package settings
	// does.
	CodeBadProxyURL finding.Code = "bad-proxy-url"
	// CodeBadName is a host name that the DNS or IDNA does not allow (RFC 1123 section 2.1, RFC 5891).
	CodeBadName finding.Code = "bad-name"
)

// Codes of warnings. They report and never change the composed value.
const (
	// CodePortEntry is an entry with a port, which curl, wget, aiohttp and LWP never match.
	CodePortEntry finding.Code = "port-entry"
	// CodeWildcardAlone is a star: the value becomes exactly "*", and wget, Ruby, LWP and busybox still use the proxy.
	CodeWildcardAlone finding.Code = "wildcard-alone"
	// CodeStarDotRewritten is "*.name", written as ".name", which more clients understand.
	CodeStarDotRewritten finding.Code = "star-dot-rewritten"
	// CodeTrailingDot is a name with a dot at the end. Most clients compare it literally, so both forms are written.
	CodeTrailingDot finding.Code = "trailing-dot"
	// CodeIPv6Bare is an IPv6 address without brackets, the form of Go and curl; urllib, Ruby and undici 7 do not match
	// it.
	CodeIPv6Bare finding.Code = "ipv6-bare"
	// CodeRangeEntry is "a-b", written as networks. Only the http module of Node reads ranges.
	CodeRangeEntry finding.Code = "range-entry"
	// CodeSingleLabel is a name without a dot. It also covers every name that ends in it.
	CodeSingleLabel finding.Code = "single-label"
	// CodeIDNConverted is an international name, written in its ASCII form.
	CodeIDNConverted finding.Code = "idn-converted"
	// CodeCIDRHostBits is a network with bits behind the mask, written as the network.
	CodeCIDRHostBits finding.Code = "cidr-host-bits"
	// CodeMatchAllCIDR is a network of length 0. It means every address to Go and one address to curl.
	CodeMatchAllCIDR finding.Code = "match-all-cidr"
	// CodeOverBroad is an entry that takes a large part of the internet off the proxy.
	CodeOverBroad finding.Code = "over-broad"
	// CodeSize is a value of 8 KiB or more. It is part of user data, which some clouds limit to 16 KiB.
	CodeSize finding.Code = "size"
	// CodeLoopbackProxy is a proxy on a loopback address. The composer does not report it; package settings does.
	CodeLoopbackProxy finding.Code = "loopback-proxy"
	// CodeDefaultsUsed is a field that the Cluster leaves empty and that kubeadm fills.
	CodeDefaultsUsed finding.Code = "defaults-used"
	// CodePartialIP is the beginning or end of an IPv4 address. No client reads it as a network.
	CodePartialIP finding.Code = "partial-ip"
	// CodeEndpointUnset is a Cluster without a control plane endpoint yet.
	CodeEndpointUnset finding.Code = "endpoint-unset"
	// CodeBadServiceCIDR is a Service network that Kubernetes cannot use as such, for example one too small for the DNS
	// address.
	CodeBadServiceCIDR finding.Code = "bad-service-cidr"
	// CodeNoPodNetwork is a Cluster whose Pod network is not known: requests from a node to a Pod use the proxy.
	CodeNoPodNetwork finding.Code = "no-pod-network"
	// CodeInfrastructureIgnored is a value of the infrastructure cluster object that cannot be used.
	CodeInfrastructureIgnored finding.Code = "infrastructure-ignored"
	// CodeInfrastructureUnknown is an infrastructure cluster object that nobody has read yet.
	CodeInfrastructureUnknown finding.Code = "infrastructure-unknown"
	// CodeInfrastructureKind is a kind of infrastructure cluster object that nobody knows, beside a list without a
	// network. The composer does not report it; package settings does.
	CodeInfrastructureKind finding.Code = "infrastructure-kind"
	// CodeNoNodeNetwork is a list without a network of the nodes for static Pods, which have the proxy variables
	// because the user asks for it. The composer does not report it; package settings does.
	CodeNoNodeNetwork finding.Code = "no-node-network"
	// CodeProxiedNode is a list without an address of a Machine that control-plane nodes ask. The composer does not
	// report it; package settings does.
	CodeProxiedNode finding.Code = "proxied-node"
	// CodeStaticPodsCredentials is target static-pods with a proxy whose credentials static Pods do not get. The composer
	// does not report it; package settings does.
	CodeStaticPodsCredentials finding.Code = "static-pods-credentials" //nolint:gosec // a code, no credential
	// CodeProxyInCluster is a proxy that its own Cluster would run. The composer does not report it; package settings
	// does.
	CodeProxyInCluster finding.Code = "proxy-in-cluster"
)

// Codes returns all codes, rejections first.
func Codes() []finding.Code {
	return []finding.Code{
		CodeBadCIDR, CodeBadPort, CodeUnsupportedWildcard, CodeControlCharacter, CodeForbiddenCharacter,
		CodeURLEntry, CodeTooLong,
		CodeBadProxyURL, CodeBadName,
		CodePortEntry, CodeWildcardAlone, CodeStarDotRewritten, CodeTrailingDot, CodeIPv6Bare, CodeRangeEntry,
		CodeSingleLabel, CodeIDNConverted, CodeCIDRHostBits, CodeMatchAllCIDR, CodeOverBroad, CodeSize, CodeLoopbackProxy,
		CodeDefaultsUsed, CodePartialIP, CodeEndpointUnset, CodeBadServiceCIDR, CodeNoPodNetwork,
		CodeInfrastructureIgnored, CodeInfrastructureUnknown, CodeInfrastructureKind, CodeNoNodeNetwork, CodeProxiedNode,
		CodeStaticPodsCredentials, CodeProxyInCluster,
	}
}

// IsUsual reports whether warnings with a code apply to most Clusters and need no change: fields that Cluster API and
// kubeadm fill, some of them later.
func IsUsual(code finding.Code) bool {
	return code == CodeDefaultsUsed || code == CodeEndpointUnset || code == CodeInfrastructureUnknown ||
		code == CodeInfrastructureKind
}
