package bad

import "testing"

func TestParent(t *testing.T) {
	t.Run("passes", func(*testing.T) {})
	t.Run("fails", func(t *testing.T) {
		t.Error("wrong")
	})
}

func TestPanic(*testing.T) {
	panic("boom")
}
