package main

import (
	"strings"
	"testing"
)

func TestFigures_AreComparedWithTheirBounds(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	f := figures{out: &out}
	f.add("reads", 1200)
	f.bounded("memory, MiB", 150, 150)
	f.bounded("writes", 1, 0)
	f.bounded("reconciles", 2.504, 2.5)
	want := "   1200.00  reads\n    150.00  memory, MiB, at most 150\n" +
		"      1.00  writes, at most 0\n      2.50  reconciles, at most 2.5\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	if len(f.exceeded) != 2 || f.exceeded[0].Error() != "writes: 1.00, at most 0" {
		t.Errorf("exceeded: %v", f.exceeded)
	}
}
