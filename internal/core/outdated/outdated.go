// Package outdated is what the controller records about the Machines of a Cluster that are behind its configuration: as
// text in an annotation, and as a sentence in the condition.
package outdated

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Lag is how the bootstrap data of a Machine differs from that of a new Machine.
type Lag int

// The lags.
const (
	// Current bootstrap data is the same as a new Machine's.
	Current Lag = iota
	// OldEntries: the bootstrap spec that the data was generated from has other managed entries, or none.
	OldEntries
	// OldContent: the entries are the same, but the generated Secret that they refer to has changed since, or the node has
	// lost its files.
	OldContent
)

// String says what a Machine has that a new one has not.
func (l Lag) String() string {
	switch l {
	case OldEntries:
		return "other files or commands"
	case OldContent:
		return "older values"
	default:
		return "the same"
	}
}

// Machine is a Machine whose bootstrap data differs from that of a new one.
type Machine struct {
	Name string `json:"name"`
	// Lag is how the data differs.
	Lag Lag `json:"-"`
	// Updated reports whether its node got the present content of the generated Secret after it had booted.
	Updated bool `json:"-"`
	// Created is when the Machine's bootstrap object was created, Made when its data was first generated.
	Created time.Time `json:"created"`
	Made    time.Time `json:"dataMade"`
}

// MarshalJSON adds the lag in words.
func (m Machine) MarshalJSON() ([]byte, error) {
	type machine Machine
	m.Created, m.Made = m.Created.UTC(), m.Made.UTC()
	return json.Marshal(struct {
		machine
		Has string `json:"has"`
	}{machine(m), m.Lag.String()})
}

// Group are the Machines of a control plane or pool that are behind.
type Group struct {
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	Machines []Machine `json:"machines"`
}

// Behind counts the Machines of a control plane or pool that are behind.
type Behind struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Machines int    `json:"machines"`
	// Oldest is when the oldest of them was created, to the second.
	Oldest time.Time `json:"oldest"`
}

// Count counts the Machines of a group.
func (g Group) Count() Behind {
	behind := Behind{Kind: g.Kind, Name: g.Name, Machines: len(g.Machines)}
	for _, machine := range g.Machines {
		behind.Oldest = earlier(behind.Oldest, machine.Created)
	}
	behind.Oldest = behind.Oldest.UTC().Truncate(time.Second)
	return behind
}

// Sum counts the Machines of all groups.
func Sum(groups []Group) Behind {
	var sum Behind
	for _, group := range groups {
		one := group.Count()
		sum.Machines, sum.Oldest = sum.Machines+one.Machines, earlier(sum.Oldest, one.Oldest)
	}
	return sum
}

// most is how many groups a sentence names, and how many Machines of each of them.
const most = 3

// Sentence describes all groups in the condition of a Cluster, "" if no Machine is behind. It names the first groups,
// and the first Machines of each. The same groups make the same text.
func Sentence(groups []Group) string {
	groups = slices.DeleteFunc(slices.Clone(groups), func(g Group) bool { return len(g.Machines) == 0 })
	all := Sum(groups).Machines
	switch len(groups) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s of %s outdated proxy settings: %s", count(all), groups[0].has(), groups[0].names())
	}
	texts, left := []string{}, all
	for _, group := range groups[:min(most, len(groups))] {
		texts = append(texts, fmt.Sprintf("%d of %s %s (%s)", len(group.Machines), group.Kind, group.Name, group.names()))
		left -= len(group.Machines)
	}
	return fmt.Sprintf("%s have outdated proxy settings: %s", count(all), strings.Join(texts, ", ")+more(left))
}

// count is a number of Machines in words.
func count(machines int) string {
	if machines == 1 {
		return "1 Machine"
	}
	return fmt.Sprintf("%d Machines", machines)
}

// has names the group with a verb for its Machines.
func (g Group) has() string {
	verb := "have"
	if len(g.Machines) == 1 {
		verb = "has"
	}
	return g.Kind + " " + g.Name + " " + verb
}

// names are those of the first Machines.
func (g Group) names() string {
	names := make([]string, 0, most)
	for _, machine := range g.Machines[:min(most, len(g.Machines))] {
		names = append(names, machine.Name)
	}
	return strings.Join(names, ", ") + more(len(g.Machines)-len(names))
}

// more ends a list that leaves out some.
func more(left int) string {
	if left == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", left)
}

// earlier returns the earlier of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// MaxGroups is how many groups a record names. Those after them are one group without a kind and a name.
const MaxGroups = 100

// Text returns the value of contract.AnnotationMachinesBehind, "" if no Machine is behind. The same groups make the
// same text.
func Text(groups []Group) string {
	var counts []Behind
	for _, group := range groups {
		if len(group.Machines) == 0 {
			continue
		}
		if len(counts) < MaxGroups {
			counts = append(counts, group.Count())
			continue
		}
		if len(counts) == MaxGroups {
			counts = append(counts, Behind{})
		}
		more, others := group.Count(), &counts[MaxGroups]
		others.Machines, others.Oldest = others.Machines+more.Machines, earlier(others.Oldest, more.Oldest)
	}
	if len(counts) == 0 {
		return ""
	}
	text, _ := json.Marshal(counts) //nolint:errchkjson // strings, numbers and times of the API
	return string(text)
}
