package infrastructure

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// Limits for one object. Values beyond them are ignored, with a finding.
const (
	maxEntries  = 64
	maxFindings = 8
	// maxVisited is how many values are read, entries or not.
	maxVisited = 1000
)

// Facts are the facts about the infrastructure of a Cluster.
type Facts struct {
	noproxy.Infrastructure
	// EndpointHost is the control-plane endpoint of kinds that have it in a field of their own, or "".
	EndpointHost string
	// UserData is how many bytes of user data Machines may have, 0 if no limit is known.
	UserData int
	// Read reports whether the object was read. Otherwise the facts come from its kind alone.
	Read bool
	// Unresolved are the places of values with a variable of clusterctl. They count as absent.
	Unresolved []finding.Place
}

// Kinds returns all kinds of the table, in its order.
func Kinds() []string {
	var kinds []string
	for _, r := range rows {
		kinds = append(kinds, r.kinds...)
	}
	return kinds
}

// IsKnown reports whether a kind is in the table.
func IsKnown(kind string) bool { return find(kind).kinds != nil }

// IsRead reports whether objects of a kind have relevant fields.
func IsRead(kind string) bool {
	r := find(kind)
	return len(r.nodes)+len(r.ranges)+len(r.hosts)+len(r.urls)+len(r.suffixes)+len(r.metadataIn) > 0 || r.endpoint != ""
}

// find returns the row of a kind, the zero row if it is not in the table.
func find(kind string) row {
	for _, r := range rows {
		if slices.Contains(r.kinds, kind) {
			return r
		}
	}
	return row{}
}

// Of returns the facts that the kind of an infrastructure cluster object alone implies.
func Of(kind string) Facts {
	r := find(kind)
	f := Facts{UserData: r.userData}
	role := kind + " metadata service"
	for _, host := range r.metadata {
		f.Metadata = append(f.Metadata, noproxy.Fact{Text: host, Role: role})
	}
	for _, host := range r.metadataIPv6 {
		f.Metadata = append(f.Metadata, noproxy.Fact{Text: host, Role: role, OnlyIPv6: true})
	}
	for _, host := range r.internal {
		f.Entries = append(f.Entries, noproxy.Fact{Text: host, Role: kind + " internal service"})
	}
	return f
}

// Read returns the facts in an infrastructure cluster object of a kind. The object is not trusted: values of an
// unexpected type are ignored with a finding, which does not quote them. Package noproxy parses the rest.
func Read(kind, name string, object map[string]any) Facts {
	r := find(kind)
	reader := reader{Facts: Of(kind), object: object, where: kind + " " + name}
	reader.Read = true
	add := func(to *[]noproxy.Fact, node bool) func(string, finding.Place) {
		return func(text string, place finding.Place) {
			*to = append(*to, noproxy.Fact{Text: text, Place: place, Node: node})
		}
	}
	for _, path := range r.metadataIn {
		reader.each(path, add(&reader.Metadata, false))
	}
	if r.nodesIf == "" || reader.isTrue(r.nodesIf) {
		before := len(reader.Entries)
		for _, alternative := range r.nodes {
			for _, path := range alternative {
				reader.each(path, add(&reader.Entries, true))
			}
			if len(reader.Entries) > before {
				break
			}
		}
	}
	for _, path := range r.ranges {
		reader.firstNetwork(path)
	}
	reader.CoversPods = r.pods && slices.ContainsFunc(reader.Entries, func(f noproxy.Fact) bool { return f.Node })
	for _, path := range r.hosts {
		reader.each(path, add(&reader.Entries, false))
	}
	for _, path := range r.urls {
		reader.each(path, func(text string, place finding.Place) {
			if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
				add(&reader.Entries, false)(u.Hostname(), place)
			} else {
				reader.ignore(place, "the value is not a URL")
			}
		})
	}
	for _, path := range slices.Sorted(maps.Keys(r.suffixes)) {
		reader.each(path,
			func(text string, place finding.Place) { add(&reader.Entries, false)(r.suffixes[path](text), place) })
	}
	if r.endpoint != "" {
		reader.each(r.endpoint, func(text string, _ finding.Place) { reader.EndpointHost = text })
	}
	return reader.Facts
}

// reader reads one object.
type reader struct {
	Facts

	object  map[string]any
	where   string
	visited int
	given   int
}

// place is the place of a path in the object.
func (r *reader) place(names ...string) finding.Place {
	return finding.Place{Object: r.where, Kind: finding.InObject}.Child(names...)
}

// ignore adds a finding about an ignored value.
func (r *reader) ignore(place finding.Place, why string) {
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, noproxy.Ignored(place, why))
	}
}

// each calls visit for every text at a path.
func (r *reader) each(path string, visit func(text string, place finding.Place)) {
	r.walk(r.object, r.place(), strings.Split(path, "."), func(value any, place finding.Place) {
		text, isText := value.(string)
		switch {
		case !isText:
			r.ignore(place, "the value is not a string")
		case strings.TrimSpace(text) == "":
		case strings.Contains(text, "${"):
			r.Unresolved = append(r.Unresolved, place)
		case r.given >= maxEntries:
			if r.given++; r.given == maxEntries+1 {
				r.ignore(place, fmt.Sprintf(
					"at most %d values of one object are read; this one and those after it are not", maxEntries))
			}
		default:
			r.given++
			visit(strings.TrimSpace(text), place)
		}
	})
}

// walk calls visit for every value at a path below value that is there.
func (r *reader) walk(value any, place finding.Place, path []string, visit func(value any, place finding.Place)) {
	if value == nil || r.visited > maxVisited {
		return
	}
	if len(path) == 0 {
		r.visited++
		visit(value, place)
		return
	}
	parent, isMap := value.(map[string]any)
	if !isMap {
		r.ignore(place, "the value is not an object")
		return
	}
	name, isList := strings.CutSuffix(path[0], "[]")
	name, isMapping := strings.CutSuffix(name, "{}")
	child, at := parent[name], place.Child(name)
	switch {
	case child == nil:
	case isList:
		list, ok := child.([]any)
		if !ok {
			r.ignore(at, "the value is not a list")
		}
		for i, item := range list {
			if r.visited++; r.visited > maxVisited {
				return
			}
			r.walk(item, at.Index(i), path[1:], visit)
		}
	case isMapping:
		mapping, ok := child.(map[string]any)
		if !ok {
			r.ignore(at, "the value is not an object")
		}
		for _, key := range slices.Sorted(maps.Keys(mapping)) {
			if r.visited++; r.visited > maxVisited {
				return
			}
			r.walk(mapping[key], at.Item(key), path[1:], visit)
		}
	default:
		r.walk(child, at, path[1:], visit)
	}
}

// isTrue reports whether the field at a path is true.
func (r *reader) isTrue(path string) bool {
	isTrue := false
	r.walk(r.object, r.place(), strings.Split(path, "."), func(value any, _ finding.Place) { isTrue = value == true })
	return isTrue
}

// firstNetwork adds the network of the first of addresses, with the length in prefix. An address may be a range or a
// network.
func (r *reader) firstNetwork(path string) {
	var prefix int64
	r.walk(r.object, r.place(), strings.Split(path+".prefix", "."), func(value any, place finding.Place) {
		switch n := value.(type) {
		case int64:
			prefix = n
		case float64:
			prefix = int64(n)
		default:
			if text, _ := value.(string); strings.Contains(text, "${") {
				r.Unresolved = append(r.Unresolved, place)
			} else {
				r.ignore(place, "the value is not a number")
			}
		}
	})
	first := true
	r.each(path+".addresses[]", func(text string, place finding.Place) {
		if !first || prefix == 0 {
			return
		}
		first = false
		address, err := netip.ParseAddr(text[:len(text)-len(strings.TrimLeft(text, "0123456789abcdefABCDEF.:"))])
		if err != nil || prefix < 0 || prefix > int64(address.BitLen()) {
			r.ignore(place, "the value is not an address, a range or a network that has this prefix length")
			return
		}
		network := netip.PrefixFrom(address, int(prefix)).Masked()
		r.Entries = append(r.Entries, noproxy.Fact{Text: network.String(), Place: place, Node: true})
	})
}

// dotted returns the suffix for a domain.
func dotted(domain string) string { return "." + strings.Trim(domain, ".") }

// awsSuffix is the suffix of the names that EC2 gives to instances in a region.
func awsSuffix(region string) string {
	if region == "us-east-1" {
		return ".ec2.internal"
	}
	return "." + region + ".compute.internal"
}

// gcpSuffix is the suffix of the names that Compute Engine gives to instances of a project. A project of a domain is
// named domain:name.
func gcpSuffix(project string) string {
	if domain, name, found := strings.Cut(project, ":"); found {
		project = name + "." + domain
	}
	return ".c." + project + ".internal"
}
