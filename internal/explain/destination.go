package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// Destination is one request that is explained.
type Destination struct {
	// Name is the displayed destination: scheme and port only where they were given, never userinfo, path or query.
	Name string `json:"destination"`
	// URL is the URL that the clients request. Without a scheme it is https, and http for port 80.
	URL string `json:"url"`
	// What describes it, for example "API Service address"; empty for a destination that the user gave.
	What string `json:"what,omitempty"`
	// InCluster reports whether it belongs to the Cluster, so that no client should use the proxy for it.
	InCluster bool `json:"inCluster"`
	// CounterCheck marks the one destination that every client should send to the proxy.
	CounterCheck bool `json:"counterCheck,omitempty"`
}

// host returns the host of the URL without brackets.
func (d Destination) host() string {
	_, authority, _ := strings.Cut(d.URL, "://")
	if address, _, ok := strings.Cut(strings.TrimPrefix(authority, "["), "]"); ok {
		return address
	}
	host, _, _ := strings.Cut(authority, ":")
	return host
}

// ParseDestination reads an http or https URL, a host, host:port, or an address, also an IPv6 address without brackets.
// Userinfo, path, query and fragment are dropped, since no client chooses the proxy by them. The error does not contain
// the text.
func ParseDestination(text string) (Destination, error) {
	text = strings.TrimSpace(text)
	if _, err := netip.ParsePrefix(text); err == nil {
		return Destination{}, errors.New("it is a network; give one of its addresses")
	}
	scheme, rest, hasScheme := strings.Cut(text, "://")
	if !hasScheme {
		scheme, rest = "", text
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	name := rest
	bare, bracketed := strings.CutPrefix(rest, "[")
	if bracketed {
		bare, bracketed = strings.CutSuffix(bare, "]")
	}
	if address, err := netip.ParseAddr(bare); err == nil && address.Is6() && (bracketed || bare == rest) {
		if address.Zone() != "" {
			return Destination{}, errors.New("it has a zone; give the address without it")
		}
		rest = "[" + bare + "]"
	}
	switch scheme = strings.ToLower(scheme); {
	case hasScheme && scheme != "http" && scheme != "https":
		return Destination{}, errors.New("the scheme is neither http nor https; use a URL, a host, host:port or an address")
	case hasScheme:
		name = scheme + "://" + rest
	case strings.HasSuffix(rest, ":80") && !strings.HasPrefix(rest, "["), strings.HasSuffix(rest, "]:80"):
		scheme = "http"
	default:
		scheme = "https"
	}
	d := Destination{Name: name, URL: scheme + "://" + rest}
	client, err := match.Lookup("go")
	if err != nil {
		return Destination{}, err
	}
	if _, err := client.Match("", d.URL); err != nil {
		return Destination{}, fmt.Errorf("%w; give a URL, a host, host:port or an address", errors.Unwrap(err))
	}
	return d, nil
}

// at returns a destination for a valid host.
func at(scheme, host string, port int32, what string) Destination {
	name := host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port > 0 {
		host += ":" + strconv.Itoa(int(port))
		name = host
	}
	return Destination{Name: name, URL: scheme + "://" + host, What: what, InCluster: true}
}
