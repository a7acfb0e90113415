package slim

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// TestWords_AreKeptOnceAndNotForever has more of them than are kept, and longer ones.
func TestWords_AreKeptOnceAndNotForever(t *testing.T) {
	t.Parallel()
	w := words{known: map[string]string{}}
	at := func(word string) *byte {
		return unsafe.StringData(w.once(strings.Clone(word))) //nolint:gosec // only the address is looked at
	}
	same := func(word string) bool {
		first := at(word)
		runtime.GC()
		return first == at(word)
	}
	if !same("%") || same(strings.Repeat("%", maxWord+1)) {
		t.Error("a short word is not kept, or a long one is")
	}
	for i := range 2 * maxWords {
		if word := fmt.Sprint(i); w.once(word) != word {
			t.Fatalf("%s became %s", word, w.once(word))
		}
	}
	if len(w.known) > maxWords || !same("%") || same("late") {
		t.Errorf("%d words are kept; the first %t, a late one %t", len(w.known), same("%"), same("late"))
	}
}
