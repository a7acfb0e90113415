package explain

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// counterCheck is a destination that no Cluster has. A list with which it bypasses the proxy is too wide.
const counterCheck = "https://registry.example.com"

// kubeletPort is where kubelets listen.
const kubeletPort = 10250

// defaultPort is the port of a control plane endpoint without a port.
const defaultPort = 6443

// Cluster knows which destinations belong to a Cluster, independent of the groups and entries of its list.
type Cluster struct {
	entries []noproxy.Entry
	domain  string
	port    int32
	omitted []noproxy.Group
	added   []Destination
}

// NewCluster reads the network, the endpoint and the infrastructure of a Cluster; lists and profile of in have no
// influence, and what omitted groups have is a destination that may be proxied. The zero Input stands for a Cluster
// with the defaults of kubeadm. endpointPort 0 means 6443.
// The error is the one of noproxy.Compose.
func NewCluster(in noproxy.Input, endpointPort int32) (Cluster, error) {
	omitted := in.OmitGroups
	in.OmitGroups, in.Profile = nil, noproxy.ProfileService
	in.Installation, in.User, in.Variable = noproxy.Layer{}, noproxy.Layer{}, noproxy.Layer{}
	composed, err := noproxy.Compose(in)
	if err != nil {
		return Cluster{}, err
	}
	if endpointPort == 0 {
		endpointPort = defaultPort
	}
	c := Cluster{entries: composed.Entries, port: endpointPort, omitted: omitted}
	for _, e := range c.entries {
		if e.Group == noproxy.GroupServiceDomain && e.Value != ".svc" && c.domain == "" {
			c.domain = strings.TrimPrefix(e.Value, ".")
		}
	}
	return c, nil
}

// Add adds a destination of Destinations that nodes ask for by the user's own files. It skips a text that is no
// destination.
func (c *Cluster) Add(text, what string) {
	d, err := ParseDestination(text)
	if _, notURL := url.Parse(d.URL); err != nil || notURL != nil {
		return
	}
	d.What, d.InCluster = what, c.Contains(d)
	c.added = append(c.added, d)
}

// Destinations returns the important destinations of the Cluster in a fixed order: the API Service by address and by
// its names, DNS, an address of a Pod and of a node, the control plane endpoint, the metadata service of the cloud and
// other internal hosts, each where the Cluster has one, then the added ones, and last a counter-check that should go to
// the proxy.
func (c Cluster) Destinations() []Destination {
	var out []Destination
	add := func(d Destination) { out = append(out, d) }
	c.each(noproxy.GroupServiceAddresses, noproxy.RoleAPIAddress,
		func(v string) { add(at("https", v, 0, noproxy.RoleAPIAddress)) })
	const name = "API Service name"
	for _, host := range []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"} {
		add(at("https", host, 0, name))
	}
	add(at("https", "kubernetes.default.svc."+c.domain, 0, name))
	add(at("https", "kubernetes.default.svc."+c.domain+".", 0, "absolute API Service name"))
	c.each(noproxy.GroupServiceAddresses, noproxy.RoleDNSAddress,
		func(v string) { add(at("http", v, 0, noproxy.RoleDNSAddress)) })
	c.firstNetworks(func(e noproxy.Entry) bool { return e.Group == noproxy.GroupPods },
		func(a netip.Addr) { add(at("http", a.String(), 0, "a Pod address")) })
	c.firstNetworks(func(e noproxy.Entry) bool { return e.Node },
		func(a netip.Addr) { add(at("https", a.String(), kubeletPort, "a node, its kubelet")) })
	c.each(noproxy.GroupEndpoint, "", func(v string) { add(at("https", v, c.port, "control plane endpoint")) })
	c.each(noproxy.GroupMetadata, "", func(v string) {
		if !strings.Contains(v, "/") { // not all link-local addresses
			add(at("http", v, 0, "metadata service"))
		}
	})
	for _, e := range c.entries {
		switch {
		case e.Group != noproxy.GroupInfrastructure || e.Node:
		case strings.HasPrefix(e.Value, "."):
			add(at("https", "host"+e.Value, 0, "an internal name"))
		default:
			add(at("https", e.Value, 0, "an internal host"))
		}
	}
	for i := range out {
		if out[i].InCluster = c.Contains(out[i]); !out[i].InCluster {
			out[i].What += ", left out of NO_PROXY as asked for"
		}
	}
	return append(append(out, c.added...), Destination{
		Name: counterCheck, URL: counterCheck, What: "counter-check, should be proxied",
		CounterCheck: true,
	})
}

// each calls f for the values of a group, of those with a role if it is not "".
func (c Cluster) each(g noproxy.Group, role string, f func(value string)) {
	for _, e := range c.entries {
		if e.Group == g && (role == "" || e.Role == role) {
			f(e.Value)
		}
	}
}

// firstNetworks calls f with an address of the first network of each family among the entries that are chosen.
func (c Cluster) firstNetworks(chosen func(noproxy.Entry) bool, f func(netip.Addr)) {
	families := map[bool]bool{}
	for _, e := range c.entries {
		if p, err := netip.ParsePrefix(e.Value); err == nil && chosen(e) && !families[p.Addr().Is4()] {
			families[p.Addr().Is4()] = true
			f(someAddress(p))
		}
	}
}

// someAddress returns an address from the middle of the first /24 or /120 of a network, or its last one if it is
// smaller.
func someAddress(p netip.Prefix) netip.Addr {
	a := p.Addr()
	for range 17 {
		if next := a.Next(); next.IsValid() && p.Contains(next) {
			a = next
		}
	}
	return a
}

// Contains reports whether a destination belongs to the Cluster: it is on a loopback interface, in a Pod or Service
// network, below the Service domain or .svc, a short name of the API Service, the control plane endpoint, the
// metadata service, or a fact of the infrastructure.
func (c Cluster) Contains(d Destination) bool {
	host := strings.ToLower(d.host())
	address, err := netip.ParseAddr(host)
	address = address.Unmap()
	asked := func(g noproxy.Group) bool { return !slices.Contains(c.omitted, g) }
	isLoopback := err == nil && address.IsLoopback() || strings.TrimSuffix(host, ".") == "localhost"
	if asked(noproxy.GroupLoopback) && isLoopback ||
		slices.ContainsFunc(c.entries, func(e noproxy.Entry) bool { return asked(e.Group) && e.Covers(host) }) {
		return true
	}
	// The link-local addresses at which clouds serve metadata, whatever the infrastructure.
	return err == nil && asked(noproxy.GroupMetadata) &&
		(address == netip.AddrFrom4([4]byte{169, 254, 169, 254}) || address.String() == "fd00:ec2::254")
}

// Choose returns the given destinations, or those of the Cluster if there are none. The error names the position of an
// invalid destination, counted from 1.
func (c Cluster) Choose(texts []string) ([]Destination, error) {
	if len(texts) == 0 {
		return c.Destinations(), nil
	}
	out := make([]Destination, len(texts))
	for i, text := range texts {
		d, err := ParseDestination(text)
		if err != nil {
			return nil, fmt.Errorf("destination %d: %w", i+1, err)
		}
		d.InCluster = c.Contains(d)
		out[i] = d
	}
	return out, nil
}
