// Package expiring remembers values until a time. Writes drop expired values, at a cost that does not grow with the
// number of values.
package expiring

import (
	"sync"
	"time"
)

// Map remembers a value for each key until a time. Its zero value is empty and ready. It can be used concurrently and
// must not be copied.
type Map[K comparable, V any] struct {
	mutex   sync.Mutex
	entries map[K]entry[V]
	// limit is the number of entries that triggers the next sweep.
	limit int
}

type entry[V any] struct {
	value V
	until time.Time
}

// minSweep is the smallest limit.
const minSweep = 64

// Get returns the value of a key at a time, and whether it has one.
func (m *Map[K, V]) Get(key K, now time.Time) (V, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	found, ok := m.entries[key]
	if !ok || !now.Before(found.until) {
		var none V
		return none, false
	}
	return found.value, true
}

// Put remembers a value at a time until another.
func (m *Map[K, V]) Put(key K, value V, now, until time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.entries == nil {
		m.entries = map[K]entry[V]{}
	}
	m.entries[key] = entry[V]{value: value, until: until}
	if len(m.entries) <= max(m.limit, minSweep) {
		return
	}
	for other, e := range m.entries {
		if !now.Before(e.until) {
			delete(m.entries, other)
		}
	}
	m.limit = 2 * len(m.entries) // so many writes pay for the next sweep
}

// Delete forgets the value of a key.
func (m *Map[K, V]) Delete(key K) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.entries, key)
}

// Len returns the number of entries, including expired ones that are not dropped yet.
func (m *Map[K, V]) Len() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(m.entries)
}
