package expiring_test

import (
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/expiring"
)

func at(seconds int) time.Time { return time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC) }

func TestMap_ForgetsAtTheTime(t *testing.T) {
	t.Parallel()
	var m expiring.Map[string, int]
	if _, found := m.Get("a", at(0)); found {
		t.Error("an empty map has a value")
	}
	m.Put("a", 1, at(0), at(10))
	m.Put("b", 2, at(0), at(20))
	for _, test := range []struct {
		key   string
		now   int
		want  int
		found bool
	}{{"a", 0, 1, true}, {"a", 9, 1, true}, {"a", 10, 0, false}, {"b", 10, 2, true}, {"c", 0, 0, false}} {
		if got, found := m.Get(test.key, at(test.now)); got != test.want || found != test.found {
			t.Errorf("%s at %d s: %d, %v; want %d, %v", test.key, test.now, got, found, test.want, test.found)
		}
	}
	m.Put("a", 3, at(30), at(40))
	if got, found := m.Get("a", at(30)); got != 3 || !found {
		t.Errorf("a key that is written again: %d, %v", got, found)
	}
	m.Delete("a")
	if _, found := m.Get("a", at(30)); found {
		t.Error("a key that was deleted has a value")
	}
}

func TestMap_HoldsAtMostTwiceWhatCounts(t *testing.T) {
	t.Parallel()
	var m expiring.Map[int, struct{}]
	for i := range 100_000 {
		m.Put(i, struct{}{}, at(i), at(i+500))
	}
	if held := m.Len(); held > 1001 {
		t.Errorf("%d entries are held, and 500 have not expired", held)
	}
	if _, found := m.Get(99_999, at(99_999)); !found {
		t.Error("the last is gone")
	}
}

// BenchmarkMap_Put shows that a write costs the same however much is remembered.
func BenchmarkMap_Put(b *testing.B) {
	for name, lasting := range map[string]int{"1000": 1000, "100000": 100_000} {
		b.Run(name, func(b *testing.B) {
			var m expiring.Map[int, struct{}]
			for i := range b.N {
				m.Put(i, struct{}{}, at(i), at(i+lasting))
			}
		})
	}
}
