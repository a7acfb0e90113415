//go:build node

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

// Request is a line of a proxy's log.
type Request struct {
	// Client is the address of the machine.
	Client string
	// Status is squid's code and that of HTTP, for example TCP_TUNNEL/200.
	Status string
	Method string
	// Host and Port are the destination.
	Host, Port string
	// User is who the client said it is, or "-".
	User string
}

// noRequest is what squid writes for a connection that ended before it asked
// for anything.
const noRequest = "error:transaction-end-before-headers"

// ParseRequests reads a log that has squid's logformat of this package. Every
// line must be a request with a destination, or a connection without any
// request, which is left out.
func ParseRequests(text string) ([]Request, error) {
	var requests []Request
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 6 {
			return nil, fmt.Errorf("parsing a log: %q has %d fields, want 6", line, len(fields))
		}
		if fields[4] == noRequest {
			continue
		}
		host, port, err := destination(fields[3], fields[4])
		if err != nil {
			return nil, fmt.Errorf("parsing a log: %q: %w", line, err)
		}
		requests = append(requests, Request{
			Client: fields[1], Status: fields[2], Method: fields[3], Host: host, Port: port, User: fields[5],
		})
	}
	return requests, nil
}

// destination is the destination of a request: a CONNECT names host:port, all others a URL.
func destination(method, target string) (host, port string, err error) {
	if method == "CONNECT" {
		return net.SplitHostPort(target)
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return "", "", fmt.Errorf("%q is no URL with a host", target)
	}
	port = u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Hostname(), port, nil
}

// Requests returns what is in the log of a proxy. squid writes a tunnel when
// it is closed.
func (l *Lab) Requests(t *testing.T, proxy string) []Request {
	t.Helper()
	requests, err := ParseRequests(l.read(filepath.Join(proxy, "access.log")))
	must(t, err)
	return requests
}

// Pulls returns the repository and tag of each image whose manifest the
// registry has given away, each once, in the order of its log. It fails the
// test if the registry was asked by anything but the host of the proxies.
func (l *Lab) Pulls(t *testing.T) []string {
	t.Helper()
	var pulls []string
	seen := map[string]bool{}
	for line := range strings.Lines(l.read(filepath.Join(registryName, "access.log"))) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue // "ready"
		}
		if fields[0] != proxiesOutside {
			t.Errorf("the registry was asked by %s, which is no proxy: %s", fields[0], line)
		}
		if fields[3] != "200" {
			continue
		}
		name, reference, found := strings.Cut(strings.TrimPrefix(fields[2], "/v2/"), "/manifests/")
		if image := name + ":" + reference; found && !strings.HasPrefix(reference, "sha256:") && !seen[image] {
			seen[image] = true
			pulls = append(pulls, image)
		}
	}
	return pulls
}

// InCluster says what of a cluster a host is, if it is any of it: what must
// never be asked of a proxy. networks are the cluster's by name; domain is the
// domain of its Services.
func InCluster(host string, networks map[string]netip.Prefix, domain string) (string, bool) {
	address, err := netip.ParseAddr(host)
	if err != nil {
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		switch {
		case name == "localhost":
			return "loopback", true
		case name == "kubernetes" || name == "kubernetes.default" || name == "svc" || strings.HasSuffix(name, ".svc") ||
			name == domain || strings.HasSuffix(name, "."+domain):
			return "a Service", true
		case name == "metadata.google.internal":
			return "metadata", true
		}
		return "", false
	}
	address = address.Unmap()
	switch {
	case address.IsLoopback():
		return "loopback", true
	case address.IsLinkLocalUnicast():
		return "metadata", true
	}
	for name, network := range networks {
		if network.Contains(address) {
			return name, true
		}
	}
	return "", false
}
