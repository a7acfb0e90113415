// Package noproxy composes the value of NO_PROXY for the nodes of one Cluster, and checks what users add to it.
//
// The list is made of named groups in a fixed order, each entry with its origin. It is written in the form that
// most clients understand: networks masked, addresses and names in canonical text, no brackets, one comma between
// entries. Which client honors which form was measured; docs/no-proxy.md and package match have the rules.
//
// The package is pure: the same input gives the same bytes, and a value fed back as user text with the same Cluster
// gives itself.
package noproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// maxEnvironmentString is what execve(2) takes for one environment string, NUL included (MAX_ARG_STRLEN: 32 pages).
const maxEnvironmentString = 131072

// warnSize is the length from which a value is reported as large.
const warnSize = 8 * 1024

// maxFindings is how many findings of one layer are reported before the rest is only counted.
const maxFindings = 100

// Profile is the kind of programs that read the value.
type Profile string

const (
	// ProfileService is for systemd services and kubeadm on nodes, which are Go programs. It is the default.
	ProfileService Profile = "service"
	// ProfileShell is for values published to other programs. It omits IPv6 networks and bracketed addresses, with
	// which httpx does not start.
	ProfileShell Profile = "shell"
)

// Layer is a list that a user or an operator wrote.
type Layer struct {
	// Place is where the text is, for example key noProxy of a Secret. Its zero value is called noProxy.
	Place finding.Place
	// Text is the list. Commas, spaces and line ends separate entries, and so do the hyphens of a YAML list.
	Text string
}

// Input is everything that the value depends on.
type Input struct {
	// PodCIDRs is spec.clusterNetwork.pods.cidrBlocks. If empty, nothing is composed for Pods.
	PodCIDRs []string
	// ServiceCIDRs is spec.clusterNetwork.services.cidrBlocks. If empty, kubeadm uses 10.96.0.0/12.
	ServiceCIDRs []string
	// ServiceDomain is spec.clusterNetwork.serviceDomain. If empty, kubeadm uses cluster.local.
	ServiceDomain string
	// EndpointHost is spec.controlPlaneEndpoint.host: a name or an address. Empty while it is not known.
	EndpointHost string
	// Infrastructure has the facts about the infrastructure.
	Infrastructure Infrastructure
	// Installation is the list that the operator of the manager gives to all Clusters.
	Installation Layer
	// User is the list of the proxy Secret.
	User Layer
	// Variable is the list in the variable of a Cluster that has a ClusterClass. Its entries are user entries too.
	Variable Layer
	// OmitGroups are the groups to omit. Their entries are validated all the same.
	OmitGroups []Group
	// Profile is ProfileService if empty.
	Profile Profile
	// DNSAddresses are the addresses of the DNS Service if they are not the tenth of the Service network. They replace
	// the tenth address of their family.
	DNSAddresses []string
}

// Roles of entries that one group has for several purposes.
const (
	// RoleAPIAddress is an address of the API Service.
	RoleAPIAddress = "API Service address"
	// RoleDNSAddress is an address of the DNS Service.
	RoleDNSAddress = "DNS Service address"
)

// Entry is one item of the composed list.
type Entry struct {
	// Value is the text between the commas.
	Value string
	// Group is the group that brought it first.
	Group Group
	// Role describes the entry, such as RoleAPIAddress. It is "" if the place is enough.
	Role string
	// Place is where it comes from. It is the zero value for entries that every Cluster has.
	Place finding.Place
	// Node reports whether the entry is a network in which nodes have their addresses.
	Node bool
}

// Origin describes where e comes from, for example "spec.clusterNetwork.pods.cidrBlocks[0]".
func (e Entry) Origin() string {
	switch {
	case e.Role == "":
		return e.Place.String()
	case e.Place.IsZero():
		return e.Role
	}
	return e.Role + " in " + e.Place.String()
}

// Covers reports whether a host, an address or a name, is what e names, or in it.
func (e Entry) Covers(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	address, err := netip.ParseAddr(host)
	if network, bad := netip.ParsePrefix(e.Value); bad == nil {
		return err == nil && network.Contains(address.Unmap())
	}
	if err == nil {
		host = address.Unmap().String()
	}
	value := strings.TrimSuffix(e.Value, ".")
	return host == value || err != nil && strings.HasPrefix(value, ".") && strings.HasSuffix(host, value)
}

// Result is a composed list.
type Result struct {
	// Value is the list in the form of the variable. It has only bytes from 0x21 to 0x7e and may be empty.
	Value string
	// Entries are the items of Value in order.
	Entries []Entry
	// HasNodeNetwork reports whether nodes may be among what the list covers: the infrastructure has their network,
	// or a list that somebody wrote has a network or a star.
	HasNodeNetwork bool
	// Warnings are in input order. They do not change Value.
	Warnings []finding.Finding
}

// Compose returns the value of NO_PROXY. A bare name of several labels is also written with a leading dot, for clients
// that compare names exactly, unless the value would then be too long for an environment string.
//
// If something is rejected, the error is finding.Errors in input order. Their places show the rejected text, except for
// what may be a credential. At most 100 findings of one layer are reported. The Result then has nothing but warnings.
func Compose(in Input) (Result, error) {
	switch in.Profile {
	case "", ProfileService, ProfileShell:
	default:
		return Result{}, fmt.Errorf("composing NO_PROXY: profile %q is neither %s nor %s", in.Profile, ProfileService,
			ProfileShell)
	}
	c := compose(in, true)
	if c.overflow != nil {
		c = compose(in, false)
	}
	if c.star != nil {
		c.out, c.size, c.overflow = []Entry{*c.star}, 1, nil
	}
	if c.overflow != nil {
		place := c.overflow.Place
		if place.IsZero() {
			place = finding.Field(c.overflow.Origin())
		}
		c.reject(CodeTooLong, place,
			fmt.Sprintf("NO_PROXY exceeds %d bytes at this entry", maxEnvironmentString),
			"write networks or suffixes instead of single hosts")
	}
	if err := c.rejected.Err(); err != nil {
		return Result{Warnings: c.warnings}, err
	}
	values := make([]string, len(c.out))
	for i, e := range c.out {
		values[i] = e.Value
	}
	r := Result{Value: strings.Join(values, ","), Entries: c.out, Warnings: c.warnings}
	r.HasNodeNetwork = c.tellsNodes || c.writesNetwork || c.star != nil
	if len(r.Value) >= warnSize {
		r.Warnings = append(r.Warnings, finding.Finding{
			Code: CodeSize, Place: finding.Field("NO_PROXY"), Advice: "write networks or suffixes instead of single hosts",
			Message: fmt.Sprintf("the value has %d bytes and is part of the user data of every Machine", len(r.Value)),
		})
	}
	return r, nil
}

// compose runs over the input once. The further forms of names (see parsed.also) are for clients that compare
// literally; a list that does not fit with them is composed without.
func compose(in Input, also bool) *composer {
	const most = 24 // entries of most Clusters
	c := &composer{in: in, also: also, out: make([]Entry, 0, most), seen: make(map[string]bool, most)}
	c.cluster()
	c.infrastructure()
	c.layer(GroupInstallation, in.Installation)
	c.layer(GroupUser, in.User)
	c.layer(GroupUser, in.Variable)
	return c
}

// composer collects entries, warnings and errors.
type composer struct {
	in       Input
	also     bool // add the further forms of names
	out      []Entry
	seen     map[string]bool
	size     int    // length of the joined values
	overflow *Entry // the first entry that does not fit
	star     *Entry // the first star
	warnings []finding.Finding
	rejected finding.Errors
	ipv6     bool // the Cluster has an IPv6 network
	// tellsNodes reports that the infrastructure has a node network, writesNetwork that a user wrote a network.
	tellsNodes, writesNetwork bool
}

func (c *composer) omitted(g Group) bool { return slices.Contains(c.in.OmitGroups, g) }

// add appends an entry with a canonical value unless it is there, its group is left out or the list is full.
func (c *composer) add(e Entry) {
	if c.omitted(e.Group) || c.seen[e.Value] {
		return
	}
	grow := len(e.Value)
	if len(c.out) > 0 {
		grow += len(",")
	}
	if c.overflow == nil && len("NO_PROXY=")+c.size+grow+len("\x00") > maxEnvironmentString {
		c.overflow = new(e) // a copy, as the address of e would put every entry on the heap
	}
	if c.overflow != nil {
		return
	}
	c.size += grow
	c.seen[e.Value] = true
	c.out = append(c.out, e)
}

func (c *composer) reject(code finding.Code, place finding.Place, message, advice string) {
	c.rejected = append(c.rejected, finding.Rejection(code, place, message, advice))
}

// rejectAt adds a rejection of the value at a place.
func (c *composer) rejectAt(place finding.Place, f *finding.Finding) {
	c.reject(f.Code, place, f.Message, f.Advice)
}

func (c *composer) warn(code finding.Code, place finding.Place, message, advice string) {
	c.warnings = append(c.warnings, finding.Finding{Code: code, Place: place, Message: message, Advice: advice})
}

// warnAll adds the warnings of an entry at a place.
func (c *composer) warnAll(place finding.Place, warnings []finding.Finding) {
	for _, w := range warnings {
		c.warn(w.Code, place, w.Message, w.Advice)
	}
}

// accept reports whether the profile accepts the entry.
func (c *composer) accept(p parsed) bool { return p.strict || c.in.Profile != ProfileShell }

// layer adds a Layer.
func (c *composer) layer(g Group, l Layer) {
	if l.Place.IsZero() {
		l.Place = finding.Field("noProxy")
	}
	secret := strings.Contains(l.Text, "@") || strings.Contains(l.Text, "-----BEGIN") // of a URL, or a key
	rejected := 0
	n := 0
	for text := range Items(l.Text) {
		n++
		place := l.Place.At(n)
		p, bad := parseEntry(text)
		if !secret && (bad != nil || len(p.warnings) > 0) {
			place = place.Show(shown(text))
		}
		if bad != nil {
			if rejected++; rejected <= maxFindings {
				c.rejectAt(place, bad)
			}
			continue
		}
		if c.omitted(g) {
			continue
		}
		if p.kind == kindStar {
			c.warnAll(place, p.warnings)
			if c.star == nil {
				c.star = &Entry{Value: "*", Group: g, Place: place.Show("")}
			}
			continue
		}
		c.entry(g, p, place)
	}
	if more := rejected - maxFindings; more > 0 {
		c.reject(CodeForbiddenCharacter, l.Place, fmt.Sprintf("%d more entries are rejected", more),
			"check that the value is a list of hosts")
	}
}

// entry adds a parsed entry with its further forms. An entry that is already in the list gets no further form and no
// warning, so that a composed value passes unchanged.
func (c *composer) entry(g Group, p parsed, place finding.Place) {
	if !slices.ContainsFunc(p.values, func(v string) bool { return !c.seen[v] }) {
		return
	}
	c.warnAll(place, p.warnings)
	if !c.accept(p) {
		return
	}
	c.writesNetwork = c.writesNetwork || p.kind == kindCIDR && (g == GroupInstallation || g == GroupUser)
	forms := [][]string{p.values[:1], p.also, p.values[1:]}
	if !c.also {
		forms[1] = nil
	}
	for _, values := range forms {
		for _, v := range values {
			c.add(Entry{Value: v, Group: g, Place: place.Show("")})
		}
	}
}

// Items yields the non-empty items of a list. A single hyphen at the start of a line marks a YAML list item and is
// skipped.
func Items(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
			if rest, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), "- "); ok {
				line = rest
			}
			for item := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
				if !yield(item) {
					return
				}
			}
		}
	}
}

// cluster adds the groups that are computed from the Cluster.
func (c *composer) cluster() {
	pods := c.networks(networkField("pods"), c.in.PodCIDRs)
	services := c.networks(networkField("services"), c.in.ServiceCIDRs)
	if len(c.in.ServiceCIDRs) == 0 {
		services = []network{{netip.MustParsePrefix("10.96.0.0/12"), finding.Field("kubeadm default service network")}}
		c.warn(CodeDefaultsUsed, networkField("services"), "the field is empty; the default of kubeadm is used",
			"set the field if the Cluster uses another network")
	}
	loopback := []string{"localhost", "127.0.0.1"}
	c.ipv6 = slices.ContainsFunc(slices.Concat(pods, services), func(n network) bool { return n.prefix.Addr().Is6() })
	if c.ipv6 {
		loopback = append(loopback, "::1")
	}
	for _, value := range loopback {
		c.add(Entry{Value: value, Group: GroupLoopback, Role: "loopback"})
	}
	c.addNetworks(GroupPods, pods)
	c.addNetworks(GroupServices, services)
	c.serviceAddresses(services)
	for _, name := range []string{"kubernetes", "kubernetes.default"} {
		c.add(Entry{Value: name, Group: GroupAPINames, Role: "API Service name"})
	}
	c.serviceDomain()
	c.endpoint()
}

// networkField is the place of a list of networks of the Cluster.
func networkField(name string) finding.Place {
	return finding.Field("spec", "clusterNetwork", name, "cidrBlocks")
}

// network is a network and where it comes from.
type network struct {
	prefix netip.Prefix
	place  finding.Place
}

// networks reads a list field of the Cluster.
func (c *composer) networks(field finding.Place, blocks []string) []network {
	var out []network
	for i, text := range blocks {
		place := field.Index(i)
		prefix, hostBits, ok := parseCIDR(strings.TrimFunc(text, unicode.IsSpace))
		if !ok {
			c.rejectAt(place.Show(shown(text)), badCIDR(text))
			continue
		}
		if hostBits {
			c.warn(CodeCIDRHostBits, place, "bits behind the mask are set; written as the network",
				"write "+prefix.String())
		}
		out = append(out, network{prefix, place})
	}
	return out
}

// addNetworks adds networks to a group as the profile allows.
func (c *composer) addNetworks(g Group, networks []network) {
	if c.omitted(g) {
		return
	}
	for _, n := range networks {
		p := parsed{kind: kindCIDR, strict: n.prefix.Addr().Is4()}
		p.addCIDR(n.prefix)
		c.entry(g, p, n.place)
	}
}

// serviceAddresses adds the first and the tenth address of the first Service network of each family: the API Service
// and DNS. Kubernetes assigns these two (kubeadm: GetAPIServerVirtualIP, GetDNSIP).
func (c *composer) serviceAddresses(services []network) {
	dns := c.dnsAddresses()
	done := map[bool]bool{}
	for _, n := range services {
		is4 := n.prefix.Addr().Is4()
		if done[is4] {
			c.warn(CodeBadServiceCIDR, n.place, "Kubernetes uses one Service network of each family",
				"keep one network of each family")
			continue
		}
		done[is4] = true
		if a := n.prefix.Addr(); a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified() {
			c.warn(CodeBadServiceCIDR, n.place, "Services cannot have addresses in this network",
				"use a private network")
		}
		if a, ok := nth(n.prefix, 1); ok {
			c.add(Entry{Value: a.String(), Group: GroupServiceAddresses, Role: RoleAPIAddress, Place: n.place})
		}
		if a, ok := nth(n.prefix, 10); !ok {
			c.warn(CodeBadServiceCIDR, n.place, "the network is too small for the DNS address, which is its tenth",
				"use a network with more addresses")
		} else if !slices.ContainsFunc(dns, func(d netip.Addr) bool { return d.Is4() == is4 }) {
			c.add(Entry{Value: a.String(), Group: GroupServiceAddresses, Role: RoleDNSAddress, Place: n.place})
		}
	}
	for _, a := range dns {
		c.add(Entry{
			Value: a.String(), Group: GroupServiceAddresses, Role: RoleDNSAddress,
			Place: finding.Field("the options"),
		})
	}
}

// dnsAddresses reads the option.
func (c *composer) dnsAddresses() []netip.Addr {
	var out []netip.Addr
	for i, text := range c.in.DNSAddresses {
		a, err := netip.ParseAddr(strings.Trim(text, "[] \t\r\n"))
		if err != nil || a.Zone() != "" {
			c.reject(CodeBadName, finding.Field(fmt.Sprintf("DNS Service address %d", i+1)),
				"the value is not an IP address", "write one address")
			continue
		}
		out = append(out, a.Unmap())
	}
	return out
}

// serviceDomain adds the suffixes of Service names, relative and absolute.
func (c *composer) serviceDomain() {
	field := finding.Field("spec", "clusterNetwork", "serviceDomain")
	c.add(Entry{Value: ".svc", Group: GroupServiceDomain, Role: "Service names"})
	domain := strings.ToLower(strings.Trim(strings.TrimFunc(c.in.ServiceDomain, unicode.IsSpace), "."))
	place := field
	if c.in.ServiceDomain == "" {
		domain, place = "cluster.local", finding.Field("kubeadm default service domain")
		c.warn(CodeDefaultsUsed, field, "the field is empty; the default of kubeadm is used",
			"set the field if the Cluster uses another domain")
	}
	ascii, bad := asciiName(domain)
	if bad == nil {
		bad = checkName(ascii)
	}
	if bad != nil {
		c.reject(bad.Code, field, bad.Message, "write a domain such as cluster.local")
		return
	}
	c.add(Entry{Value: "." + ascii, Group: GroupServiceDomain, Place: place})
	c.add(Entry{Value: "." + ascii + ".", Group: GroupServiceDomain, Place: place})
}

// endpoint adds the host of the control plane endpoint, without a port.
func (c *composer) endpoint() {
	field := finding.Field("spec", "controlPlaneEndpoint", "host")
	host := strings.TrimFunc(c.in.EndpointHost, unicode.IsSpace)
	if host == "" {
		if !c.omitted(GroupEndpoint) {
			c.warn(CodeEndpointUnset, field, "the control plane endpoint is not known yet",
				"no action needed: nodes wait until it is set")
		}
		return
	}
	c.host(host, field)
}

// host adds the host of the control-plane endpoint: exactly the name, without port, brackets or trailing dot.
func (c *composer) host(text string, place finding.Place) {
	p, bad := parseEntry(text)
	if bad == nil && (p.kind == kindStar || p.kind == kindCIDR || strings.HasPrefix(p.values[0], ".")) {
		bad = rejection(CodeBadName, "the value is not one host", "write a name or an address")
	}
	if bad != nil {
		c.rejectAt(place, bad)
		return
	}
	if c.omitted(GroupEndpoint) {
		return
	}
	if p.kind == kindPort {
		bare, _, _ := splitPort(p.values[0])
		c.host(bare, place)
		return
	}
	for _, w := range p.warnings {
		if w.Code == CodeIPv6Bare && c.in.Profile == ProfileShell || w.Code == CodeIDNConverted { // nodes have Go and curl
			c.warnAll(place, []finding.Finding{w})
		}
	}
	if c.accept(p) {
		c.add(Entry{Value: p.values[0], Group: GroupEndpoint, Place: place})
	}
}
