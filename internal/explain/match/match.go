// Package match models what HTTP clients do with NO_PROXY: given the text of the variable and the URL of a request, it
// returns whether the client connects directly or through the proxy, and which entry decided.
//
// There is no standard for NO_PROXY. The package holds one matcher per rule set, written after the source of the client
// it models and proven on testdata/matrix.csv, a table of measurements on real clients. Every matcher assumes that
// proxies for http and https are set in both spellings, and that the client saw exactly the given value.
//
// The package is pure: nothing is resolved, read or dialed. The one client that resolves names before it compares them
// (Ruby) gets its addresses from a Resolver, or answers DependsOnDNS.
package match

import (
	"fmt"
	"net/netip"
)

// Verdict is the result of a client for one request.
type Verdict string

const (
	// Direct means that the client connects to the destination itself.
	Direct Verdict = "direct"
	// Proxied means that the client sends the request to the proxy.
	Proxied Verdict = "proxied"
	// Refuses means that the client sends nothing: it fails on the list or on the destination.
	Refuses Verdict = "refuses"
	// DependsOnDNS means that the client resolves the name and compares the address with an entry.
	DependsOnDNS Verdict = "depends-on-dns"
)

// Answer is the decision of one client about one destination.
type Answer struct {
	// Verdict is the decision.
	Verdict Verdict
	// Entry is the position of the deciding token, counted from 0 in the list as this client splits it, or -1 if no
	// token decided.
	Entry int
	// Token is the text of the deciding token as this client reads it, or empty.
	Token string
	// Reason is a short phrase such as "built-in loopback".
	Reason string
}

// DeadEntry is a token without the effect that its author meant.
type DeadEntry struct {
	// Entry is the position of the token, counted from 0 in the list as this client splits it.
	Entry int
	// Token is the text of the token as this client reads it.
	Token string
	// Fatal is true if the client refuses to work at all while the token is in the list.
	Fatal bool
	// Reason is a short phrase such as "matches nothing".
	Reason string
}

// Resolver returns the first address of a host name. It reports false if the name does not resolve.
// A nil Resolver means that addresses are unknown.
type Resolver func(name string) (netip.Addr, bool)

// Client is one program or library in one version.
type Client struct {
	// Name is the name of the client as in testdata/matrix.csv, for example "python-requests".
	Name string
	// Version is the version that was measured.
	Version string
	// Rules names the rule set that the client shares with others, for example "curl-v4cidr".
	Rules string

	match matcher
	split func(list string) []token
}

// matcher decides about one parsed destination.
type matcher func(list string, d destination, resolve Resolver) Answer

// String returns the name and version in the form that Lookup accepts.
func (c Client) String() string { return c.Name + "@" + c.Version }

// Match returns the client's verdict about a request to destination, an http or https URL, when NO_PROXY holds noProxy.
// It returns an error if destination is not such a URL. The error does not hold the destination, which may carry a
// credential.
func (c Client) Match(noProxy, destination string) (Answer, error) {
	return c.MatchResolved(noProxy, destination, nil)
}

// MatchResolved is Match for a caller that knows the addresses of names. With a Resolver the answer is never
// DependsOnDNS.
func (c Client) MatchResolved(noProxy, destination string, resolve Resolver) (Answer, error) {
	d, err := parseDestination(destination)
	if err != nil {
		return Answer{}, fmt.Errorf("parsing destination: %w", err)
	}
	return c.match(noProxy, d, resolve), nil
}

// Dead returns the tokens of noProxy that can match nothing in this client, and those that make it refuse to start, in
// list order. A token is alive if some http or https URL made from it goes direct because of it, or goes direct anyway.
// For a client that reads the proxy variables but not NO_PROXY, every token is dead.
func (c Client) Dead(noProxy string) []DeadEntry {
	var found []DeadEntry
	tokens := c.split(noProxy)
	for i, t := range tokens {
		if t.unread {
			found = append(found,
				DeadEntry{Entry: i, Token: t.text, Reason: "not read: the list ends at the first space inside an entry"})
			continue
		}
		list := t.text
		if len(tokens) > 1 {
			list += ",x.invalid"
		}
		switch alive, fatal := c.probe(list, t.text); {
		case fatal:
			found = append(found, DeadEntry{Entry: i, Token: t.text, Fatal: true, Reason: "the client refuses to start"})
		case !alive:
			found = append(found, DeadEntry{Entry: i, Token: t.text, Reason: "matches nothing"})
		}
	}
	return found
}

// probe reports whether the first token of list decides about a destination that is made from its text.
func (c Client) probe(list, text string) (alive, fatal bool) {
	for _, d := range witnesses(text) {
		a := c.match(list, d, nil)
		if a.Entry != 0 && a.Verdict != Direct {
			continue
		}
		switch a.Verdict {
		case Refuses:
			return false, true
		case Direct, DependsOnDNS:
			return true, false
		case Proxied:
		}
	}
	return false, false
}

// token is one item of a list after the client split it.
type token struct {
	text   string
	unread bool // the client stops before it
}

// texts makes tokens from strings.
func texts(items []string) []token {
	out := make([]token, len(items))
	for i, s := range items {
		out[i].text = s
	}
	return out
}

// proxied is the answer when nothing matched.
func proxied() Answer { return Answer{Verdict: Proxied, Entry: -1, Reason: "no entry matches"} }

// direct is the answer when the client decides without looking at a token.
func direct(reason string) Answer { return Answer{Verdict: Direct, Entry: -1, Reason: reason} }

// refuses is the answer when the client fails on the destination.
func refuses(reason string) Answer { return Answer{Verdict: Refuses, Entry: -1, Reason: reason} }

// star is the answer when the whole value is a star.
func star() Answer {
	return Answer{Verdict: Direct, Entry: 0, Token: "*", Reason: "the whole value is *"}
}

// first returns Direct for the first token that f accepts.
func first(tokens []token, f func(text string) bool) Answer {
	for i, t := range tokens {
		if t.unread {
			break
		}
		if f(t.text) {
			return Answer{Verdict: Direct, Entry: i, Token: t.text, Reason: "entry matches"}
		}
	}
	return proxied()
}
