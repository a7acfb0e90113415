package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// clusters returns n control planes with a spec that has lists already, as documents or as the items of one list.
func clusters(n int, list bool) string {
	var b strings.Builder
	if list {
		b.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	}
	for i := range n {
		lines := fmt.Sprintf("apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlane\n"+
			"metadata:\n  name: c%d\nspec:\n  kubeadmConfigSpec:\n    files:\n    - path: /etc/a\n    preKubeadmCommands:\n    - echo %d\n", i, i)
		if list {
			b.WriteString("- " + strings.TrimSuffix(strings.ReplaceAll(lines, "\n", "\n  "), "  "))
		} else {
			b.WriteString("---\n" + lines)
		}
	}
	return b.String()
}

// TestApply_ParsesADocumentOnceForAllItsEdits counts allocations, nearly all of which are those of parsing: the seven
// edits of an object cost less than to read the outcome two more times, and 40 items of a list cost four times as much
// as 10.
func TestApply_ParsesADocumentOnceForAllItsEdits(t *testing.T) {
	patched := func(data string) *Stream {
		s, err := Parse("in.yaml", []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(patches(s)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, list := range []bool{false, true} {
		cost := func(n int) float64 {
			data := clusters(n, list)
			return testing.AllocsPerRun(3, func() { patched(data) })
		}
		outcome := patched(clusters(10, list)).Bytes()
		reading := testing.AllocsPerRun(3, func() {
			if _, err := Parse("out.yaml", outcome); err != nil {
				t.Fatal(err)
			}
		})
		ten, forty := cost(10), cost(40)
		if ten > 3*reading {
			t.Errorf("list %t: %.0f allocations, and %.0f to read the outcome", list, ten, reading)
		}
		if forty > 4.4*ten {
			t.Errorf("list %t: %.0f allocations for 10 objects, %.0f for 40", list, ten, forty)
		}
	}
}

func TestApply_MakesAllChangesOrNone(t *testing.T) {
	t.Parallel()
	in := "kind: A\n---\nkind: List\nitems:\n- a: 1\n- b: [x]\n---\nkind: C\n"
	set := func(o *Object, field string) Change {
		return Change{o, []Edit{{Op: SetScalar, Path: []string{field}, Value: "v"}}}
	}
	s, err := Parse("in.yaml", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	o := s.Objects()
	err = s.Apply([]Change{
		set(o[0], "k"), set(o[1], "k"), set(o[2], "b"),
		{o[3], []Edit{{Op: Remove, Path: []string{"l"}}}},
	})
	want := "editing in.yaml: document 2, line 6: b: the value is a list, not a scalar\n" +
		"editing in.yaml: document 3, line 8: C: l[0]: the index is out of range, the list has 0 items"
	if err == nil || err.Error() != want || string(s.Bytes()) != in {
		t.Fatalf("%v\n%s", err, s.Bytes())
	}
	if err := s.Apply([]Change{set(o[2], "k"), set(o[0], "k"), set(o[1], "k"), set(o[2], "m")}); err != nil {
		t.Fatal(err)
	}
	out := "kind: A\nk: v\n---\nkind: List\nitems:\n- a: 1\n  k: v\n- b: [x]\n  k: v\n  m: v\n---\nkind: C\n"
	if d := cmp.Diff(out, string(s.Bytes())); d != "" {
		t.Error(d)
	}
}

// TestApply_WritesSeveralEditsAtOnePlace has edits meet in one list, one mapping and one line.
func TestApply_WritesSeveralEditsAtOnePlace(t *testing.T) {
	t.Parallel()
	list := []string{"spec", "l"}
	insert := func(index int, value any) Edit { return Edit{Op: Insert, Path: list, Index: index, Value: value} }
	for _, tc := range []struct {
		name, in string
		edits    []Edit
		want     string
	}{
		{"every item of a block list is exchanged", "spec:\n  l:\n  - a\n  # b\n  - b\nx: y\n", []Edit{
			{Op: Remove, Path: list, Index: 1}, {Op: Remove, Path: list}, insert(0, "x"), insert(1, "w"),
		}, "spec:\n  l:\n  # b\n  - x\n  - w\nx: y\n"},
		{"every item of a flow list is exchanged", "spec: {l: [a, b]}\n", []Edit{
			insert(2, "x"), {Op: Remove, Path: list, Index: 1}, {Op: Remove, Path: list},
		}, "spec: {l: [\"x\"]}\n"},
		{"the last items of a flow list go and others come", "spec: {l: [a, b, c]}\n", []Edit{
			{Op: Remove, Path: list, Index: 1}, {Op: Remove, Path: list, Index: 1}, insert(1, "x"), insert(0, "y"),
		}, "spec: {l: [\"y\", a, \"x\"]}\n"},
		{"a list and the mapping around it grow at one line", "spec:\n  l:\n  - a\n", []Edit{
			{Op: SetScalar, Path: []string{"spec", "m", "k"}, Value: "1"},
			insert(1, "x"),
			{Op: SetScalar, Path: []string{"spec", "m", "o"}, Value: "2"},
			{Op: SetScalar, Path: []string{"z"}, Value: "3"},
		}, "spec:\n  l:\n  - a\n  - x\n  m:\n    k: \"1\"\n    o: \"2\"\nz: \"3\"\n"},
		{"an empty mapping takes two lists", "spec: {} # c\n", []Edit{
			insert(0, "x"), {Op: Insert, Path: []string{"spec", "m"}, Value: "w"}, insert(1, "z"),
		}, "spec: # c\n  l:\n  - x\n  - z\n  m:\n  - w\n"},
		{"all keys of a mapping go", "spec:\n  l:\n  - a\n  m:\n  - b\nx: y\n", []Edit{
			{Op: Remove, Path: list, Keep: 1}, {Op: Remove, Path: []string{"spec", "m"}, Keep: 1},
		}, "spec: {}\nx: y\n"},
		{"a mapping goes with all its keys", "spec:\n  l:\n  - a\n  m:\n  - b\nx: y\n", []Edit{
			{Op: Remove, Path: list}, {Op: Remove, Path: []string{"spec", "m"}},
		}, "x: y\n"},
		{"all keys of a mapping are exchanged", "spec:\n  l:\n  - a\nx: y\n", []Edit{
			{Op: Remove, Path: list, Keep: 1}, {Op: Insert, Path: []string{"spec", "m"}, Value: "b"},
		}, "spec:\n  m:\n  - b\nx: y\n"},
		{"an item comes and goes", "spec:\n  l: [ a ]\n", []Edit{insert(0, "x"), {Op: Remove, Path: list}}, "spec:\n  l: [ a ]\n"},
		{"a key comes and goes", "spec:\n  l: [ a ]\n", []Edit{
			{Op: SetScalar, Path: []string{"x"}, Value: "1"}, {Op: RemoveKey, Path: []string{"x"}},
		}, "spec:\n  l: [ a ]\n"},
		{"a document is emptied", "# c\nspec:\n  l:\n  - a\n", []Edit{{Op: RemoveKey, Path: list[:1]}}, "# c\n{}\n"},
		{"the last lines go and others come without a line break at the end", "spec:\n  l:\n  - a\n  - b", []Edit{
			{Op: Remove, Path: list, Index: 1}, {Op: SetScalar, Path: []string{"x"}, Value: "1"},
		}, "spec:\n  l:\n  - a\nx: \"1\""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse("in.yaml", []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Objects()[0].Apply(tc.edits); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, string(s.Bytes())); d != "" {
				t.Error(d)
			}
		})
	}
}
