package infrastructure

import (
	"encoding/json"
	"fmt"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// Memory has the facts of an infrastructure cluster object when it was read, in the form that outlives a process.
type Memory struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	// Provisioned reports that the object was read after its provider had filled it in. Nobody reads it again then.
	Provisioned bool `json:"provisioned,omitempty"`

	Facts Facts `json:"-"`
}

// kept is a value of the object, or a finding about one.
type kept struct {
	Text    string         `json:"text"`
	Path    []finding.Step `json:"path"`
	Node    bool           `json:"node,omitempty"`
	Message string         `json:"message,omitempty"`
}

// encoded is a Memory in JSON.
type encoded struct {
	Memory

	Metadata []kept `json:"metadata,omitempty"`
	Entries  []kept `json:"entries,omitempty"`
	Ignored  []kept `json:"ignored,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Pods     bool   `json:"coversPods,omitempty"`
}

// Encode writes m, the same bytes for the same memory. What follows from the kind is left out: another version of this
// program may know more.
func (m Memory) Encode() ([]byte, error) {
	e := encoded{Memory: m, Endpoint: m.Facts.EndpointHost, Pods: m.Facts.CoversPods}
	e.Metadata, e.Entries = keep(m.Facts.Metadata), keep(m.Facts.Entries)
	for _, f := range m.Facts.Findings {
		e.Ignored = append(e.Ignored, kept{Path: f.Place.Path, Message: f.Message})
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding facts of %s %s: %w", m.Kind, m.Name, err)
	}
	return text, nil
}

// keep returns the facts that come from the object.
func keep(facts []noproxy.Fact) []kept {
	var all []kept
	for _, f := range facts {
		if !f.Place.IsZero() {
			all = append(all, kept{Text: f.Text, Path: f.Place.Path, Node: f.Node})
		}
	}
	return all
}

// Decode reads the text of Encode. found is false for anything else: somebody may have changed it.
func Decode(text []byte) (m Memory, found bool) {
	var e encoded
	if err := json.Unmarshal(text, &e); err != nil || len(e.Metadata)+len(e.Entries) > maxEntries ||
		len(e.Ignored) > maxFindings {
		return Memory{}, false
	}
	m = e.Memory
	m.Facts = Of(m.Kind)
	m.Facts.Read, m.Facts.CoversPods, m.Facts.EndpointHost = true, e.Pods, e.Endpoint
	place := func(k kept) finding.Place {
		return finding.Place{Object: m.Kind + " " + m.Name, Kind: finding.InObject, Path: k.Path}
	}
	for _, k := range e.Metadata {
		m.Facts.Metadata = append(m.Facts.Metadata, noproxy.Fact{Text: k.Text, Place: place(k)})
	}
	for _, k := range e.Entries {
		m.Facts.Entries = append(m.Facts.Entries, noproxy.Fact{Text: k.Text, Place: place(k), Node: k.Node})
	}
	for _, k := range e.Ignored {
		m.Facts.Findings = append(m.Facts.Findings, finding.Finding{
			Code: noproxy.CodeInfrastructureIgnored, Place: place(k), Message: k.Message, Advice: noproxy.AdviceIgnored,
		})
	}
	return m, true
}
