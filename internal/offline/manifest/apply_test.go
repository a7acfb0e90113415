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
// edits of an object cost less than to read the outcome four more times, and 40 items of a list cost four times as much
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
		if ten > 4.5*reading {
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

func TestApply(t *testing.T) {
	t.Parallel()
	list := []string{"spec", "l"}
	insert := func(index int, value any) Edit { return Edit{Op: Insert, Path: list, Index: index, Value: value} }
	for _, tc := range []struct {
		name, in string
		edits    []Edit
		want     string
	}{
		{"indexes follow the edits before", "spec:\n  l:\n  - a\n", []Edit{
			{Op: Insert, Path: list, Index: 0, Value: "x"}, {Op: Insert, Path: list, Index: 2, Value: "z"}, {Op: Remove, Path: list, Index: 1},
		}, "spec:\n  l:\n  - x\n  - z\n"},
		{"a replaced item keeps its neighbors", "spec:\n  l:\n  # one\n  - a # c\n\n  # two\n  - b\n", []Edit{
			{Op: Replace, Path: list, Index: 0, Value: "x\ny"},
		}, "spec:\n  l:\n  # one\n  - |- # c\n    x\n    y\n\n  # two\n  - b\n"},
		{
			"missing mappings are created", "kind: A\n",
			[]Edit{{
				Op: Insert, Path: []string{"a", "b", "l"},
				Value: Map{{"k", int64(1)}, {"m", true}, {"e", Map{}}, {"o", []any{"s", []any{1, "t"}}}},
			}},
			"kind: A\na:\n  b:\n    l:\n    - k: 1\n      m: true\n      e: {}\n      o:\n      - s\n      - - 1\n        - t\n",
		},
		{"emptied mappings go", "kind: A\na:\n  b:\n    l:\n    - k\n", []Edit{{Op: Remove, Path: []string{"a", "b", "l"}}}, "kind: A\n"},
		{"emptied mappings stay as far as they are to be kept", "kind: A\na:  # c\n  b:\n    l:\n    - k\n", []Edit{{Op: Remove, Path: []string{"a", "b", "l"}, Keep: 1}}, "kind: A\na: {}  # c\n"},
		{"a kept empty mapping is the same afterward", "kind: A\nspec: {}\n", []Edit{
			{Op: Insert, Path: list, Value: "a", Keep: 1}, {Op: Remove, Path: list, Keep: 1},
		}, "kind: A\nspec: {}\n"},
		{"an equal scalar is left as it is", "a: 'b'  # c\n", []Edit{{Op: SetScalar, Path: []string{"a"}, Value: "b"}}, "a: 'b'  # c\n"},
		{"a scalar is exchanged before its comment", "a: 'b'  # c\n", []Edit{{Op: SetScalar, Path: []string{"a"}, Value: "1"}}, "a: \"1\"  # c\n"},
		{"a null becomes a scalar", "a:  # c\nb: null\n", []Edit{
			{Op: SetScalar, Path: []string{"a"}, Value: "x"}, {Op: SetScalar, Path: []string{"b"}, Value: false},
		}, "a: x  # c\nb: false\n"},
		{"a scalar of several lines is exchanged", "a: >\n  b\n  # c\n\n# d\ne: f\n", []Edit{{Op: SetScalar, Path: []string{"a"}, Value: "x"}}, "a: x\n\n# d\ne: f\n"},
		{"a key that is not there is removed without effect", "a: b\n", []Edit{{Op: RemoveKey, Path: []string{"x", "y"}}}, "a: b\n"},
		{"a key is removed with its value", "a:\n  b: |\n    # x\n\n  # y\n  c: d\n", []Edit{{Op: RemoveKey, Path: []string{"a", "b"}}}, "a:\n\n  # y\n  c: d\n"},
		{"a quoted key is found", "\"spec\":\n  'l':\n  - a\n", []Edit{{Op: Insert, Path: list, Value: "x"}}, "\"spec\":\n  'l':\n  - x\n  - a\n"},
		{"a kept blank at the end of a scalar stays", "spec:\n  l:\n  - |+\n    a\n\n  # c\n", []Edit{{Op: Insert, Path: list, Index: 1, Value: "x"}}, "spec:\n  l:\n  - |+\n    a\n\n  - x\n  # c\n"},
		{"several line breaks at the end do not swallow a blank line", "spec:\n  l:\n  - a\n\n  - b\n", []Edit{{Op: Insert, Path: list, Index: 1, Value: "x\n\n"}}, "spec:\n  l:\n  - a\n  - \"x\\n\\n\"\n\n  - b\n"},
		{"several line breaks before a blank line are quoted", "spec:\n  l:\n  - a\n\nx: y\n", []Edit{{Op: Insert, Path: list, Index: 1, Value: "x\n\n"}}, "spec:\n  l:\n  - a\n  - \"x\\n\\n\"\n\nx: y\n"},
		{"a leading blank is quoted", "spec:\n  l:\n  - a\n", []Edit{{Op: Insert, Path: list, Index: 1, Value: "  x\ny\n"}}, "spec:\n  l:\n  - a\n  - \"  x\\ny\\n\"\n"},
		{"a block scalar at the end ends its line", "spec:\n  l:\n  - a", []Edit{{Op: Insert, Path: list, Index: 1, Value: "x\ny\n"}}, "spec:\n  l:\n  - a\n  - |\n    x\n    y\n"},
		{"a block scalar at the end ends its line as others do", "spec:\r\n  l:\r\n  - a", []Edit{{Op: Insert, Path: list, Index: 1, Value: "x\ny\n"}}, "spec:\r\n  l:\r\n  - a\r\n  - |\r\n    x\r\n    y\r\n"},
		{"a line at the end stays without a line break", "spec:\n  l:\n  - a", []Edit{{Op: Insert, Path: list, Index: 1, Value: "x"}}, "spec:\n  l:\n  - a\n  - x"},
		{"deeper comments belong to the item before", "spec:\n  l:\n  - a\n    # of a\n  # of none\n", []Edit{{Op: Insert, Path: list, Index: 1, Value: "x"}}, "spec:\n  l:\n  - a\n    # of a\n  - x\n  # of none\n"},
		{"a flow list is edited on its line", "spec: {l: [ a, \"b]\" ], m: []} # c\n", []Edit{
			{Op: Insert, Path: list, Index: 2, Value: "x"},
			{Op: Remove, Path: list, Index: 0},
			{Op: Replace, Path: list, Index: 0, Value: Map{{"k", "v"}}},
			{Op: Insert, Path: []string{"spec", "m"}, Value: "z"},
			{Op: SetScalar, Path: []string{"spec", "n"}, Value: "1"},
		}, "spec: {l: [ {\"k\": \"v\"}, \"x\" ], m: [\"z\"], \"n\": \"1\"} # c\n"},
		{"emptied flow lists go", "spec: {l: [a], m: b, o: [c]}\n", []Edit{{Op: Remove, Path: list}, {Op: Remove, Path: []string{"spec", "o"}}}, "spec: {m: b}\n"},
		{"a document with an end marker", "spec:\n  l:\n  - a\n# c\n... # end\n# after\n", []Edit{{Op: Insert, Path: list, Index: 1, Value: "x"}}, "spec:\n  l:\n  - a\n  - x\n# c\n... # end\n# after\n"},
		// Edits that meet in one list, one mapping or one line.
		{"every item of a block list is exchanged", "spec:\n  l:\n  - a\n  # b\n  - b\nx: y\n", []Edit{
			{Op: Remove, Path: list, Index: 1}, {Op: Remove, Path: list}, insert(0, "x"), insert(1, "w"),
		}, "spec:\n  l:\n  - x\n  - w\n  # b\nx: y\n"},
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
		{"lists that are indented in other ways than most keep their indentation", "spec:\n  k:\n  - a\n  m:\n  - b\n  o:\n      l:\n          - c\n", []Edit{
			{Op: Insert, Path: []string{"spec", "o", "l"}, Value: Map{{"x", "1\n2\n"}, {"z", []any{"z"}}}},
		}, "spec:\n  k:\n  - a\n  m:\n  - b\n  o:\n      l:\n          - x: |\n              1\n              2\n            z:\n            - z\n          - c\n"},
		{"what is written in another way than printed stays in a flow list", "spec: {l: [ 'a' , \"b\\u003c\\x7f\" ]} # c\n", []Edit{
			insert(1, "x"),
		}, "spec: {l: [ 'a' , \"x\", \"b\\u003c\\x7f\" ]} # c\n"},
		{"comments inside of what is removed go with it", "spec:\n  l:\n  - a: |\n      # 1\n    # 2\n    b: c\n  # 3\n\n  - d\n", []Edit{
			{Op: Remove, Path: list},
		}, "spec:\n  l:\n  # 3\n\n  - d\n"},
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
