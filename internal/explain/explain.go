// Package explain shows for a value of NO_PROXY and some destinations which clients connect directly and which use the
// proxy, which entry decides and where that entry comes from, and which entries have no effect or do harm.
//
// Package match models the clients; package noproxy knows the meaning of entries and what to write instead. This
// package combines both, as data with stable field names and as text for people. docs/no-proxy.md explains how to read
// it.
//
// The package is pure, and shows no userinfo of a value or a destination.
package explain

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// Subject identifies whose NO_PROXY is explained. All fields are for display and may be empty.
type Subject struct {
	// Cluster is the Cluster with its namespace.
	Cluster string `json:"cluster,omitempty"`
	// Pool is the MachineDeployment or MachinePool whose own proxy Secret is explained.
	Pool string `json:"pool,omitempty"`
	// Secret is the proxy Secret.
	Secret string `json:"secret,omitempty"`
	// Profile is the profile for which the list was composed; empty for a list that was given.
	Profile string `json:"profile,omitempty"`
}

// Input is the input of Explain.
type Input struct {
	Subject

	// NoProxy is the value of the variable.
	NoProxy string
	// Entries are the items of NoProxy with their origins. If nil, they are split from NoProxy and called "entry 1" and
	// so on.
	Entries []noproxy.Entry
	// NoHTTPProxy reports that there is no proxy for http destinations.
	NoHTTPProxy bool
	// OwnAddresses reports whether nodes add their own addresses and names to NoProxy, and no network in it is theirs.
	OwnAddresses bool
	// Warnings are passed on.
	Warnings []finding.Finding
	// Destinations are the rows of the report.
	Destinations []Destination
	// Clients are the columns of the report.
	Clients []match.Client
	// FailOn are the clients that must reach every in-cluster destination directly. They are columns, too.
	FailOn []match.Client
}

// Report is the outcome. Its JSON is an interface: field names do not change.
type Report struct {
	Subject

	// NoProxy is the value, userinfo replaced by xxxxx.
	NoProxy string `json:"noProxy"`
	// Entries are the items of the value in order.
	Entries []Entry `json:"entries"`
	// Warnings come from composing the value.
	Warnings []finding.Finding `json:"warnings"`
	// Clients are the columns.
	Clients []Client `json:"clients"`
	// Destinations are the rows.
	Destinations []Row `json:"destinations"`
	// Failures are the in-cluster destinations that a client of FailOn does not reach directly.
	Failures []Failure `json:"failures"`

	ownAddresses bool
}

// Entry is one item of the list and the findings about it.
type Entry struct {
	// Value is the text, userinfo replaced by xxxxx.
	Value string `json:"value"`
	// Group is the group of the composer, empty for a list that was given.
	Group string `json:"group,omitempty"`
	// Origin describes where it comes from.
	Origin string `json:"origin"`
	// DeadIn are the clients in which it matches nothing, as name@version.
	DeadIn []string `json:"deadIn,omitempty"`
	// FatalIn are the clients that refuse to work while it is in the list, as name@version.
	FatalIn []string `json:"fatalIn,omitempty"`
	// Fix is the replacement of an entry that is dead in every client that reads lists, or fatal in one.
	Fix string `json:"fix,omitempty"`

	raw string
}

// Client is one column.
type Client struct {
	// Name is its name in other fields: name@version.
	Name string `json:"name"`
	// Rules is the rule set that it shares with other clients.
	Rules string `json:"rules"`
	// ReadsNoProxy is false for a client that ignores the variable.
	ReadsNoProxy bool `json:"readsNoProxy"`

	label string
}

// Row is one destination.
type Row struct {
	Destination

	// Answers are in the order of Report.Clients.
	Answers []Answer `json:"answers"`
}

// Answer is the result of one client for one destination.
type Answer struct {
	// Client is the name@version.
	Client string `json:"client"`
	// Verdict is "direct", "proxied", "refuses" or "depends-on-dns".
	Verdict match.Verdict `json:"verdict"`
	// Entry is the deciding entry, empty if none decided.
	Entry string `json:"entry,omitempty"`
	// Origin is where the entry comes from.
	Origin string `json:"origin,omitempty"`
	// Reason is a phrase, for example "built-in loopback".
	Reason string `json:"reason"`
}

// Failure is an in-cluster destination that a client does not reach directly.
type Failure struct {
	Destination string        `json:"destination"`
	Client      string        `json:"client"`
	Verdict     match.Verdict `json:"verdict"`
}

// Explain asks every client about every destination. Its error is that of match.Client.Match and cannot happen for
// destinations of this package. It takes about 0.1 s for each client and 4,000 entries.
func Explain(in Input) (Report, error) {
	clients := columns(in)
	r := Report{
		Subject: in.Subject, Entries: entries(in), Warnings: append([]finding.Finding{}, in.Warnings...), Clients: []Client{},
		Destinations: []Row{}, Failures: []Failure{}, ownAddresses: in.OwnAddresses,
	}
	shown := make([]string, len(r.Entries))
	for i, e := range r.Entries {
		shown[i] = e.Value
	}
	r.NoProxy = strings.Join(shown, ",")
	for _, c := range clients {
		r.Clients = append(r.Clients, Client{Name: c.String(), Rules: c.Rules, ReadsNoProxy: reads(c), label: label(c)})
	}
	for _, d := range in.Destinations {
		row := Row{Destination: d}
		for _, c := range clients {
			a, err := c.Match(in.NoProxy, d.URL)
			if err != nil {
				return Report{}, err
			}
			asks := c.Rules == "none" || strings.HasPrefix(d.URL, "http://") // busybox reads no other variable
			if in.NoHTTPProxy && asks && a.Verdict != match.Direct && a.Verdict != match.Refuses {
				a = match.Answer{Verdict: match.Direct, Reason: "no httpProxy"}
			}
			row.Answers = append(row.Answers, r.answer(c, a))
			if d.InCluster && misses(a.Verdict) &&
				slices.ContainsFunc(in.FailOn, func(f match.Client) bool { return f.String() == c.String() }) {
				r.Failures = append(r.Failures, Failure{Destination: d.Name, Client: c.String(), Verdict: a.Verdict})
			}
		}
		r.Destinations = append(r.Destinations, row)
	}
	r.examine(in.NoProxy, clients)
	return r, nil
}

// misses reports a verdict with which an in-cluster destination is not reached.
func misses(v match.Verdict) bool { return v == match.Proxied || v == match.Refuses }

// columns returns the clients to show, each once.
func columns(in Input) []match.Client {
	var out []match.Client
	for _, c := range slices.Concat(in.Clients, in.FailOn) {
		if !slices.ContainsFunc(out, func(o match.Client) bool { return o.String() == c.String() }) {
			out = append(out, c)
		}
	}
	return out
}

// reads reports whether a client reads NO_PROXY at all.
func reads(c match.Client) bool { return c.Rules != "none" && c.Rules != "no-environment" }

// entries returns the items of the list.
func entries(in Input) []Entry {
	out := []Entry{}
	for _, e := range in.Entries {
		out = append(out, Entry{Value: display(e.Value), Group: string(e.Group), Origin: e.Origin(), raw: e.Value})
	}
	if in.Entries != nil {
		return out
	}
	for item := range strings.SplitSeq(in.NoProxy, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, Entry{Value: display(item), Origin: "entry " + itoa(len(out)+1), raw: item})
		}
	}
	return out
}

// answer finds the entry that a client named. Some clients split entries further, for example Ruby at colons.
func (r Report) answer(c match.Client, a match.Answer) Answer {
	out := Answer{Client: c.String(), Verdict: a.Verdict, Reason: a.Reason}
	token := strings.TrimSpace(a.Token)
	if token == "" {
		return out
	}
	out.Entry = display(token)
	whole := func(e Entry) bool { return e.raw == token }
	folded := func(e Entry) bool { return strings.EqualFold(e.raw, token) }
	part := func(e Entry) bool {
		return slices.Contains(strings.FieldsFunc(e.raw,
			func(r rune) bool { return r == ':' || r == ' ' || r == '\t' }), token)
	}
	for _, same := range []func(Entry) bool{whole, folded, part} {
		if i := slices.IndexFunc(r.Entries, same); i >= 0 {
			e := r.Entries[i]
			out.Origin = e.Origin
			switch {
			case folded(e):
			case e.Value != e.raw: // the part may be of a password
				out.Entry = e.Value
			default:
				out.Origin = "a part of " + e.Value + ", " + out.Origin
			}
			return out
		}
	}
	return out
}

// examine finds the entries that have no effect or do harm.
func (r *Report) examine(value string, clients []match.Client) {
	at := map[string][]int{}
	for i, e := range r.Entries {
		at[e.raw] = append(at[e.raw], i)
	}
	readers := 0
	for _, c := range clients {
		if !reads(c) {
			continue
		}
		readers++
		for _, f := range c.Dead(value) {
			for _, i := range at[strings.TrimSpace(f.Token)] {
				list := &r.Entries[i].DeadIn
				if f.Fatal {
					list = &r.Entries[i].FatalIn
				}
				if !slices.Contains(*list, c.String()) {
					*list = append(*list, c.String())
				}
			}
		}
	}
	for i := range r.Entries {
		if e := &r.Entries[i]; len(e.FatalIn) > 0 || e.dead(readers) {
			e.Fix = advise(e.raw)
		}
	}
}

// dead reports whether an entry matches in none of the clients that read lists.
func (e Entry) dead(readers int) bool { return readers > 0 && len(e.DeadIn) == readers }

// advise returns the replacement of an entry. It uses the composer's reading of the entry.
func advise(entry string) string {
	omit := slices.DeleteFunc(noproxy.Groups(), func(g noproxy.Group) bool { return g == noproxy.GroupUser })
	composed, err := noproxy.Compose(noproxy.Input{User: noproxy.Layer{Text: entry}, OmitGroups: omit})
	if err != nil {
		for _, f := range finding.Of(err) {
			if f.Advice != "" {
				return f.Advice
			}
		}
		return ""
	}
	for _, w := range composed.Warnings {
		if w.Place.Entry > 0 && w.Advice != "" {
			return w.Advice
		}
	}
	if composed.Value != entry {
		return "write " + composed.Value
	}
	network, err := netip.ParsePrefix(entry)
	switch {
	case err == nil && network.Addr().Is6():
		return "use profile shell for values that Python programs read"
	case err == nil:
		return "these clients read no networks; write single addresses or name suffixes for them"
	}
	return ""
}
