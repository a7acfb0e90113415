package noproxy

import (
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Infrastructure has the facts about the infrastructure of a Cluster. Values that cannot be used are ignored with a
// warning, because it is not the user's list: the provider writes it, too.
type Infrastructure struct {
	// Metadata are the hosts of the instance metadata service.
	Metadata []Fact
	// Entries are node networks and other internal hosts.
	Entries []Fact
	// CoversPods reports that Pods have addresses from the node networks.
	CoversPods bool
	// Findings are passed on as warnings.
	Findings []finding.Finding
}

// Fact is a host, an address, a network or a suffix, in any text.
type Fact struct {
	Text string
	// Role and Place are those of the entry that it makes.
	Role  string
	Place finding.Place
	// Node reports whether it is a network in which nodes have their addresses.
	Node bool
	// OnlyIPv6 reports that it counts only in Clusters with an IPv6 network.
	OnlyIPv6 bool
}

// AdviceIgnored is what to do about a value that does not count.
const AdviceIgnored = "correct it, or add what is internal to noProxy"

// Ignored is the warning about a value of an infrastructure cluster object that does not count.
func Ignored(place finding.Place, why string) finding.Finding {
	return finding.Finding{
		Code: CodeInfrastructureIgnored, Place: place, Message: why + ", so NO_PROXY lacks it",
		Advice: AdviceIgnored,
	}
}

// infrastructure adds the facts of the infrastructure cluster object.
func (c *composer) infrastructure() {
	in := c.in.Infrastructure
	for _, f := range in.Metadata {
		c.fact(GroupMetadata, f)
	}
	for _, f := range in.Entries {
		c.fact(GroupInfrastructure, f)
	}
	c.warnings = append(c.warnings, in.Findings...)
	if len(c.in.PodCIDRs) == 0 && !c.omitted(GroupPods) && (!in.CoversPods || !c.tellsNodes) {
		c.warn(CodeNoPodNetwork, networkField("pods"), "the field is empty; nodes reach Pods through the proxy",
			"set the field to the network that the CNI gives to Pods; if noProxy has that network, leave out group pods")
	}
}

// fact adds one fact, or says why not: exactly the host, without port, brackets or trailing dot.
func (c *composer) fact(g Group, f Fact) {
	if f.OnlyIPv6 && !c.ipv6 {
		return
	}
	p, bad := parseEntry(f.Text)
	if bad == nil && p.kind == kindPort {
		bare, _, _ := splitPort(p.values[0])
		p, bad = parseEntry(bare)
	}
	wide := func(w finding.Finding) bool { return w.Code == CodeMatchAllCIDR || w.Code == CodeOverBroad }
	switch {
	case bad != nil:
		c.warnings = append(c.warnings, Ignored(f.Place, bad.Message))
		return
	case p.kind == kindStar || slices.ContainsFunc(p.warnings, wide):
		c.warnings = append(c.warnings, Ignored(f.Place, "the value covers a large part of the internet"))
		return
	case f.Node && p.kind != kindCIDR && p.kind != kindAddr:
		c.warnings = append(c.warnings, Ignored(f.Place, "the value is not a network"))
		return
	case c.omitted(g) || !c.accept(p):
		return
	}
	values := p.values
	if p.kind == kindName {
		values = values[:1]
	}
	for _, v := range values {
		if i := slices.IndexFunc(c.out, func(e Entry) bool { return f.Node && e.Value == v }); i >= 0 {
			c.out[i].Node = true // of another group, too
		}
		c.add(Entry{Value: v, Group: g, Role: f.Role, Place: f.Place, Node: f.Node})
		c.tellsNodes = c.tellsNodes || f.Node
	}
}
