// Package noproxy composes the value of NO_PROXY for the nodes of one Cluster, and checks what users add to it.
//
// The list is made of named groups in a fixed order, each entry with its origin. It is written in the one form that most clients
// understand alike: networks masked, addresses and names in canonical text, no brackets, one comma between entries. Which client
// honors which form was measured; docs/no-proxy.md and package match have the rules.
//
// The package is pure: the same input gives the same bytes, and a value fed back as user text with the same Cluster gives itself.
package noproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// maxEnvironmentString is what execve(2) takes for one environment string, NUL included (MAX_ARG_STRLEN: 32 pages).
const maxEnvironmentString = 131072

// warnSize is the length from which a value is reported as large.
const warnSize = 8 * 1024

// maxFindings is how many findings of one layer are reported before the rest is only counted.
const maxFindings = 100

// Profile says who reads the value.
type Profile string

const (
	// ProfileService is for systemd services and kubeadm on nodes, which are Go programs. It is the default.
	ProfileService Profile = "service"
	// ProfileShell is for values published to other programs. It leaves out IPv6 networks and bracketed addresses, with which httpx
	// does not start.
	ProfileShell Profile = "shell"
)

// Layer is a list that somebody wrote.
type Layer struct {
	// Object is the object that holds the text, for example "Secret team-a/proxy".
	Object string
	// Key is the key in the object, for example "noProxy".
	Key string
	// Text is the list. Commas, blanks and line ends separate entries, and so do the hyphens of a YAML list.
	Text string
}

// place returns the words for entry n, counted from 1.
func (l Layer) place(n int) string {
	return fmt.Sprintf("%s entry %d", l.name(), n)
}

func (l Layer) name() string {
	key := l.Key
	if key == "" {
		key = "noProxy"
	}
	if l.Object == "" {
		return key
	}
	return l.Object + " key " + key
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
	// InfrastructureKind is spec.infrastructureRef.kind, for example AWSCluster. It selects the metadata service.
	InfrastructureKind string
	// Infrastructure is further hosts, addresses or networks of the infrastructure API.
	Infrastructure []string
	// Installation is the list that the operator of the manager gives to all Clusters.
	Installation Layer
	// User is the list of the proxy Secret.
	User Layer
	// Variable is the list in the variable of a Cluster that has a ClusterClass. Its entries are the user's too.
	Variable Layer
	// OmitGroups are the groups to leave out. What they would hold is checked all the same.
	OmitGroups []Group
	// Profile is ProfileService if empty.
	Profile Profile
	// DNSAddresses are the addresses of the DNS Service where it is not the tenth of the Service network. They replace the tenth of
	// their family.
	DNSAddresses []string
}

// Entry is one item of the composed list.
type Entry struct {
	// Value is the text between the commas.
	Value string
	// Group is the group that brought it first.
	Group Group
	// Origin says in words where it comes from, for example "spec.clusterNetwork.pods.cidrBlocks[0]".
	Origin string
}

// Result is a composed list.
type Result struct {
	// Value is the list in the form of the variable. It has only bytes from 0x21 to 0x7e and may be empty.
	Value string
	// Entries are the items of Value in order.
	Entries []Entry
	// Warnings are in input order. They do not change Value.
	Warnings []Warning
}

// Compose returns the value of NO_PROXY. A bare name of several labels is also written with a leading dot, for clients that compare
// names exactly, unless the value would not fit into an environment string then.
//
// If something is rejected, the error joins one *Error per finding in input order (see Errors).
// Of one layer at most 100 findings are reported.
func Compose(in Input) (Result, error) {
	switch in.Profile {
	case "", ProfileService, ProfileShell:
	default:
		return Result{}, fmt.Errorf("composing NO_PROXY: profile %q is neither %s nor %s", in.Profile, ProfileService, ProfileShell)
	}
	c := compose(in, true)
	if c.overflow != nil {
		c = compose(in, false)
	}
	if c.star != nil {
		c.out, c.size, c.overflow = []Entry{*c.star}, 1, nil
	}
	if c.overflow != nil {
		c.reject(&Error{
			Code: CodeTooLong, Where: c.overflow.Origin, Fix: "write networks or suffixes instead of single hosts",
			Why: fmt.Sprintf("NO_PROXY with its value is longer than %d bytes from here on", maxEnvironmentString),
		})
	}
	if len(c.errs) > 0 {
		return Result{}, errors.Join(c.errs...)
	}
	values := make([]string, len(c.out))
	for i, e := range c.out {
		values[i] = e.Value
	}
	r := Result{Value: strings.Join(values, ","), Entries: c.out, Warnings: c.warnings}
	if len(r.Value) >= warnSize {
		r.Warnings = append(r.Warnings, Warning{
			Code: CodeSize, Where: "NO_PROXY", Fix: "write networks or suffixes instead of single hosts",
			Message: fmt.Sprintf("the value has %d bytes and is part of the user data of every machine", len(r.Value)),
		})
	}
	return r, nil
}

// compose runs over the input once. The further forms of names (see parsed.also) are for clients that compare literally; a list that
// does not fit with them is composed without.
func compose(in Input, also bool) *composer {
	c := &composer{in: in, also: also, seen: map[string]bool{}}
	c.cluster()
	c.metadata()
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
	warnings []Warning
	errs     []error
}

func (c *composer) omitted(g Group) bool { return slices.Contains(c.in.OmitGroups, g) }

// add appends a canonical value unless it is there, its group is left out or the list is full.
func (c *composer) add(g Group, value, origin string) {
	if c.omitted(g) || c.seen[value] {
		return
	}
	e := Entry{Value: value, Group: g, Origin: origin}
	grow := len(value)
	if len(c.out) > 0 {
		grow += len(",")
	}
	if c.overflow == nil && len("NO_PROXY=")+c.size+grow+len("\x00") > maxEnvironmentString {
		c.overflow = &e
	}
	if c.overflow != nil {
		return
	}
	c.size += grow
	c.seen[value] = true
	c.out = append(c.out, e)
}

func (c *composer) reject(e *Error) { c.errs = append(c.errs, e) }

func (c *composer) warn(code Code, where, message, fix string) {
	c.warnings = append(c.warnings, Warning{Code: code, Where: where, Message: message, Fix: fix})
}

// warnAll adds the warnings of an entry at a place.
func (c *composer) warnAll(where string, ws []Warning) {
	for _, w := range ws {
		w.Where = where
		c.warnings = append(c.warnings, w)
	}
}

// accept reports whether the profile takes the entry.
func (c *composer) accept(p parsed) bool { return p.strict || c.in.Profile != ProfileShell }

// layer adds a list that somebody wrote.
func (c *composer) layer(g Group, l Layer) {
	rejected := 0
	n := 0
	for text := range items(l.Text) {
		n++
		p, err := parseEntry(text)
		if err != nil {
			if rejected++; rejected <= maxFindings {
				err.Where = l.place(n)
				c.reject(err)
			}
			continue
		}
		if c.omitted(g) {
			continue
		}
		where := l.place(n)
		if p.kind == kindStar {
			c.warnAll(where, p.warnings)
			if c.star == nil {
				c.star = &Entry{Value: "*", Group: g, Origin: where}
			}
			continue
		}
		c.entry(g, p, where)
	}
	if more := rejected - maxFindings; more > 0 {
		c.reject(&Error{Code: CodeForbiddenCharacter, Where: l.name(), Why: fmt.Sprintf("%d more entries are rejected", more), Fix: "check that the value is a list of hosts"})
	}
}

// entry adds a parsed entry with its further forms. What the list has already gets no further form and no warning, so that a
// composed value passes unchanged.
func (c *composer) entry(g Group, p parsed, where string) {
	if !slices.ContainsFunc(p.values, func(v string) bool { return !c.seen[v] }) {
		return
	}
	c.warnAll(where, p.warnings)
	if !c.accept(p) {
		return
	}
	c.add(g, p.values[0], where)
	if c.also {
		for _, v := range p.also {
			c.add(g, v, where)
		}
	}
	for _, v := range p.values[1:] {
		c.add(g, v, where)
	}
}

// items yields the non-empty items of a list. A hyphen alone at the start of a line is the mark of a YAML list item and is skipped.
func items(text string) func(yield func(string) bool) {
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

// cluster adds the groups that follow from the Cluster.
func (c *composer) cluster() {
	pods := c.networks("spec.clusterNetwork.pods.cidrBlocks", c.in.PodCIDRs)
	services := c.networks("spec.clusterNetwork.services.cidrBlocks", c.in.ServiceCIDRs)
	if len(c.in.ServiceCIDRs) == 0 {
		services = []network{{netip.MustParsePrefix("10.96.0.0/12"), "kubeadm default service network"}}
		c.warn(CodeDefaultsUsed, "spec.clusterNetwork.services.cidrBlocks", "the field is empty; the default of kubeadm is used", "set the field if the Cluster uses another network")
	}
	const loopback = "loopback"
	c.add(GroupLoopback, "localhost", loopback)
	c.add(GroupLoopback, "127.0.0.1", loopback)
	if slices.ContainsFunc(slices.Concat(pods, services), func(n network) bool { return n.prefix.Addr().Is6() }) {
		c.add(GroupLoopback, "::1", loopback)
	}
	c.addNetworks(GroupPods, pods)
	c.addNetworks(GroupServices, services)
	c.serviceAddresses(services)
	for _, name := range []string{"kubernetes", "kubernetes.default"} {
		c.add(GroupAPINames, name, "API Service name")
	}
	c.serviceDomain()
	c.endpoint()
}

// network is a network and where it comes from.
type network struct {
	prefix netip.Prefix
	origin string
}

// networks reads a list field of the Cluster.
func (c *composer) networks(field string, blocks []string) []network {
	var out []network
	for i, text := range blocks {
		where := fmt.Sprintf("%s[%d]", field, i)
		prefix, hostBits, ok := parseCIDR(strings.TrimFunc(text, unicode.IsSpace))
		if !ok {
			c.reject(&Error{Code: CodeBadCIDR, Where: where, Why: "the value is not a network", Fix: "write address/length"})
			continue
		}
		if hostBits {
			c.warn(CodeCIDRHostBits, where, "bits behind the mask are set; written as the network", "write "+prefix.String())
		}
		out = append(out, network{prefix, where})
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
		c.entry(g, p, n.origin)
	}
}

// serviceAddresses adds the first and the tenth address of the first Service network of each family: the API Service and DNS.
// Kubernetes gives out these two (kubeadm: GetAPIServerVirtualIP, GetDNSIP).
func (c *composer) serviceAddresses(services []network) {
	dns := c.dnsAddresses()
	done := map[bool]bool{}
	for _, n := range services {
		is4 := n.prefix.Addr().Is4()
		if done[is4] {
			c.warn(CodeBadServiceCIDR, n.origin, "Kubernetes uses one Service network of each family", "leave one network of each family")
			continue
		}
		done[is4] = true
		if a := n.prefix.Addr(); a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified() {
			c.warn(CodeBadServiceCIDR, n.origin, "Services cannot have addresses from this network", "use a private network")
		}
		if a, ok := nth(n.prefix, 1); ok {
			c.add(GroupServiceAddresses, a.String(), "API Service address in "+n.origin)
		}
		if a, ok := nth(n.prefix, 10); !ok {
			c.warn(CodeBadServiceCIDR, n.origin, "the network is too small for the DNS address, the tenth", "use a network with more addresses")
		} else if !slices.ContainsFunc(dns, func(d netip.Addr) bool { return d.Is4() == is4 }) {
			c.add(GroupServiceAddresses, a.String(), "DNS Service address in "+n.origin)
		}
	}
	for _, a := range dns {
		c.add(GroupServiceAddresses, a.String(), "DNS Service address from the options")
	}
}

// dnsAddresses reads the option.
func (c *composer) dnsAddresses() []netip.Addr {
	var out []netip.Addr
	for i, text := range c.in.DNSAddresses {
		a, err := netip.ParseAddr(strings.Trim(text, "[] \t\r\n"))
		if err != nil || a.Zone() != "" {
			c.reject(&Error{Code: CodeBadName, Where: fmt.Sprintf("DNS Service address %d", i+1), Why: "the value is not an IP address", Fix: "write one address"})
			continue
		}
		out = append(out, a.Unmap())
	}
	return out
}

// serviceDomain adds the suffixes of Service names, relative and absolute.
func (c *composer) serviceDomain() {
	const field = "spec.clusterNetwork.serviceDomain"
	c.add(GroupServiceDomain, ".svc", "Service names")
	domain := strings.ToLower(strings.Trim(strings.TrimFunc(c.in.ServiceDomain, unicode.IsSpace), "."))
	origin := field
	if c.in.ServiceDomain == "" {
		domain, origin = "cluster.local", "kubeadm default service domain"
		c.warn(CodeDefaultsUsed, field, "the field is empty; the default of kubeadm is used", "set the field if the Cluster uses another domain")
	}
	ascii, err := asciiName(domain)
	if err == nil {
		err = checkName(ascii)
	}
	if err != nil {
		err.Where, err.Fix = field, "write a domain such as cluster.local"
		c.reject(err)
		return
	}
	c.add(GroupServiceDomain, "."+ascii, origin)
	c.add(GroupServiceDomain, "."+ascii+".", origin)
}

// endpoint adds the host of the control plane endpoint, without a port.
func (c *composer) endpoint() {
	const field = "spec.controlPlaneEndpoint.host"
	host := strings.TrimFunc(c.in.EndpointHost, unicode.IsSpace)
	if host == "" {
		if !c.omitted(GroupEndpoint) {
			c.warn(CodeEndpointUnset, field, "the control plane endpoint is not known yet", "compose again when it is set")
		}
		return
	}
	c.host(GroupEndpoint, host, field, field)
}

// metadata adds what belongs to the infrastructure.
func (c *composer) metadata() {
	for _, h := range metadataHosts(c.in.InfrastructureKind) {
		c.add(GroupMetadata, h, c.in.InfrastructureKind+" metadata service")
	}
	kind := c.in.InfrastructureKind
	if kind == "" {
		kind = "infrastructure"
	}
	for i, h := range c.in.Infrastructure {
		where := fmt.Sprintf("%s host %d", kind, i+1)
		if h = strings.TrimFunc(h, unicode.IsSpace); h != "" {
			c.host(GroupInfrastructure, h, where, where)
		}
	}
}

// host adds one host of the Cluster or its infrastructure: exactly the name, without port, brackets or trailing dot.
func (c *composer) host(g Group, text, where, origin string) {
	p, err := parseEntry(text)
	if err == nil && (p.kind == kindStar || g == GroupEndpoint && (p.kind == kindCIDR || strings.HasPrefix(p.values[0], "."))) {
		err = &Error{Code: CodeBadName, Why: "the value is not one host", Fix: "write a name or an address"}
	}
	if err != nil {
		err.Where = where
		c.reject(err)
		return
	}
	if c.omitted(g) {
		return
	}
	if p.kind == kindPort {
		bare, _, _ := splitPort(p.values[0])
		c.host(g, bare, where, origin)
		return
	}
	for _, w := range p.warnings {
		if w.Code == CodeIPv6Bare || w.Code == CodeIPv6CIDR || w.Code == CodeCIDRHostBits || w.Code == CodeIDNConverted {
			c.warnAll(where, []Warning{w})
		}
	}
	values := p.values
	if p.kind == kindName {
		values = values[:1]
	}
	for _, v := range values {
		if c.accept(p) {
			c.add(g, v, origin)
		}
	}
}
