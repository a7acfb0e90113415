package settings

import (
	"bytes"
	"maps"
	"sync/atomic"
)

// Parsed remembers the settings of the proxy Secret that was parsed last. Mostly one Secret serves many Clusters, and
// parsing its certificates costs more than the rest of a pass over one of them. The zero value is empty. Its methods
// can be called concurrently.
type Parsed struct {
	last atomic.Pointer[parsed]
}

type parsed struct {
	data     map[string][]byte
	settings Proxy
	err      error
}

// parse is ParseSecret. Nobody may change the values in data, nor the settings.
func (p *Parsed) parse(data map[string][]byte) (Proxy, error) {
	if p == nil {
		return ParseSecret(data)
	}
	last := p.last.Load()
	if last == nil || !maps.EqualFunc(last.data, data, bytes.Equal) {
		last = &parsed{data: maps.Clone(data)}
		last.settings, last.err = ParseSecret(data)
		p.last.Store(last)
	}
	return last.settings, last.err
}
