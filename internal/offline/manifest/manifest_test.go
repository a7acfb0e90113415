package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	k8syaml "sigs.k8s.io/yaml"
)

func TestParse_ReportsThePlace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in, want string
	}{
		{"a syntax error in the second document", "a: b\n---\na: b\nc: d: e\n", "document 2, line 4: mapping values are not allowed in this context"},
		{"a tab as indentation", "spec:\n\tfiles: []\n", "document 1, line 2: found character that cannot start any token"},
		{"a null key", "a: b\n~: c\n", "document 1, line 2: a mapping key is not a string, is this an unresolved template?"},
		{"a Go template as a value", "name: a\nx: {{ .Values.x }}\n", "document 1, line 2: a mapping key is not a string, is this an unresolved template?"},
		{"a text as a document", "some text\n", "document 1, line 1: the document is not a mapping of keys to values"},
		{"invalid UTF-8", "a: b\nc: \xff\n", "document 1, line 2: invalid UTF-8"},
		{"UTF-16", "\xff\xfea\x00", "document 1, line 1: invalid UTF-8"},
		{"a NUL character", "a: b\n\nc: \x00\n", "document 1, line 3: control characters are not allowed"},
		{"a line break of YAML 1.1", "a: b\n---\nc: d\ne: \"f\u2028g\"\n", "document 2, line 4: a line break that is not one for every reader of YAML (NEL, LS or PS); write it as an escape in double quotes"},
		{"a byte order mark behind a separator", "a: b\n---\n\uFEFFc: d\n", "document 2, line 3: a byte order mark behind the beginning of a document; remove it"},
		{"half a surrogate pair", "{\"a\": 1}\n{\n\"\\ud83d\\ude00\":\n\"b\\ud83d\"}\n", `document 2, line 4: a string holds half of a surrogate pair (\ud800 to \udfff); write the whole character`},
		{"an unknown anchor", "a: b\nc: *d\n", "document 1, line 1: unknown anchor 'd' referenced"},
		{"an alias that contains itself", "a: &a\n  b: *a\n", "document 1, line 1: the value cannot be converted to JSON"},
		{"a number that JSON does not have", "a: .inf\n", "document 1, line 1: the value cannot be converted to JSON"},
		{"an unterminated quote before a separator", "a: \"b\n---\nc: d\n", "document 1, line 2: found unexpected end of stream"},
		{"an item of a list that is no object", "kind: List\nitems:\n- kind: A\n- b\n", "document 1, line 4: item 2 of the list is not a mapping"},
		{"a variable that is not closed", "a: [${B]\n", "document 1, line 1: did not find expected ',' or ']'"},
		{
			"two documents", "text\n---\na: b\n---\ntext\n", "document 1, line 1: the document is not a mapping of keys to values\n" +
				"parsing cluster.yaml: document 3, line 5: the document is not a mapping of keys to values",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("cluster.yaml", []byte(tc.in))
			if want := "parsing cluster.yaml: " + tc.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// TestParse_BoundsAliases gives documents that stand for much more than they hold. Without the bound some take
// gigabytes.
func TestParse_BoundsAliases(t *testing.T) {
	t.Parallel()
	repeat := func(alias string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(alias+", ", n), ", ") + "]"
	}
	levels := "a0: &a0 [x]\n"
	merged := "m0: &m0 {x: y}\n"
	for i := 1; i < 30; i++ {
		levels += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
		merged += fmt.Sprintf("m%d: &m%d {<<: [*m%d, *m%d]}\n", i, i, i-1, i-1)
	}
	wide := "a: &a " + repeat("x", 4000) + "\nb: " + repeat("*a", 80) + "\n" // 324,000 values, not too many for the parser
	const cause = "aliases stand for more than 16 MiB of values; write out what they stand for"
	for _, tc := range []struct{ name, in, want string }{
		{"levels", levels, "document 1, line 1: " + cause},
		{"merge keys", merged + "items: []\n", "document 1, line 1: " + cause},
		{"text", "a: &a " + strings.Repeat("x", 1<<20) + "\nb: " + repeat("*a", 17) + "\n", "document 1, line 1: " + cause},
		{"many documents", strings.Repeat(wide+"---\n", 5), "document 4: " + cause},
		{"few documents", strings.Repeat(wide+"---\n", 3), ""},
	} {
		_, err := Parse("in.yaml", []byte(tc.in))
		if tc.want == "" && err == nil {
			continue
		}
		if err == nil || err.Error() != "parsing in.yaml: "+tc.want {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestErrors_QuoteNoValues(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"kind: Secret\nstringData:\n  p: hunter2: x\n",
		"kind: Secret\nstringData:\n  p: !!int hunter2\n",
		"kind: Secret\nstringData:\n  p: \"hunter2\n",
		"kind: Secret\nstringData:\n  p: [hunter2\n",
		"kind: Secret\nstringData:\n  ? [hunter2]\n  : a\n",
		"kind: Secret\ndata:\n  p: !!binary hunter2\xff\n",
	} {
		if _, err := Parse("s.yaml", []byte(in)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", in, err)
		}
	}
	s, err := Parse("s.yaml", []byte("spec: hunter2\n"))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Objects()[0].Apply([]Edit{{Op: Insert, Path: []string{"spec", "files"}, Value: "hunter2"}})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func TestObjects(t *testing.T) {
	t.Parallel()
	in := "\uFEFF# c\n---\napiVersion: v1\nkind: A\nmetadata:\n  name: a\n  namespace: ${NS}\n  labels: {x: \"1\", y: 2}\n  annotations:\n    z: w\n" +
		"--- # empty\n...\n# between\n%YAML 1.2\n---\nkind: BList\nitems:\n- metadata: {name: b}\n  count: 12345678901\n  old: yes\n\n- {kind: C}\n---\nkind: List\nitems: []\n"
	s, err := Parse("in.yaml", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	type summary struct {
		APIVersion, Kind, Namespace, Name string
		Labels, Annotations               map[string]string
		Document, Line                    int
	}
	var got []summary
	for _, o := range s.Objects() {
		got = append(got, summary{
			o.APIVersion(), o.Kind(), o.Namespace(), o.Name(), o.Labels(), o.Annotations(),
			o.Document(), o.Line(),
		})
	}
	none := map[string]string{}
	want := []summary{
		{"v1", "A", "${NS}", "a", map[string]string{"x": "1"}, map[string]string{"z": "w"}, 1, 3},
		{"", "", "", "b", none, none, 3, 18},
		{"", "C", "", "", none, none, 3, 22},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	value := map[string]any{"metadata": map[string]any{"name": "b"}, "count": int64(12345678901), "old": true}
	if d := cmp.Diff(value, s.Objects()[1].Value()); d != "" {
		t.Error(d)
	}
	s.Objects()[1].Value()["metadata"].(map[string]any)["name"] = "changed"
	if got := s.Objects()[1].Name(); got != "b" {
		t.Errorf("a caller can change the object: %s", got)
	}
	if string(s.Bytes()) != in {
		t.Errorf("got %q", s.Bytes())
	}
}

func TestVariables_AreStrings(t *testing.T) {
	t.Parallel()
	const text = "a: ${A}\nb: [${B:=[\"x\", {y: z}]}, ${C}]\nc: \"${D:=\"e\"}\"\n${K}: {d: ${L}}\n"
	want := map[string]any{
		"a": "${A}", "b": []any{`${B:=["x", {y: z}]}`, "${C}"}, "c": `${D:="e"}`, "${K}": map[string]any{"d": "${L}"},
	}
	for _, more := range []string{"", "e: 1.5\n"} { // such numbers are decoded by another package
		if more != "" {
			want["e"] = 1.5
		}
		s, err := Parse("in.yaml", []byte(text+more))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, s.Objects()[0].Value()); d != "" {
			t.Error(d)
		}
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, first, second, want string
	}{
		{"a separator is added", "a: b\n", "c: d\n", "a: b\n---\nc: d\n"},
		{"a separator is not added twice", "a: b\n", "# c\n---\nc: d\n", "a: b\n# c\n---\nc: d\n"},
		{"a missing line break is added", "a: b", "c: d", "a: b\n---\nc: d"},
		{"line breaks are those of the document before", "a: b\r\nc: d", "e: f\n", "a: b\r\nc: d\r\n---\r\ne: f\n"},
		{"a directive needs the end of the document before", "a: b\n", "%YAML 1.2\n---\nc: d\n", "a: b\n...\n%YAML 1.2\n---\nc: d\n"},
		{"a byte order mark goes", "a: b\n", "\uFEFFc: d\n", "a: b\n---\nc: d\n"},
		{"an empty stream takes the document as it is", "", "\uFEFFc: d\n", "\uFEFFc: d\n"},
		{"an empty document adds nothing", "a: b\n", "", "a: b\n"},
		{"JSON needs no separator", `{"kind":"A"}`, "{\"kind\": \"B\"}\n{\"kind\": \"C\"}", "{\"kind\":\"A\"}\n{\"kind\": \"B\"}\n{\"kind\": \"C\"}"},
		{"YAML behind JSON needs one", `{"kind":"A"}`, "kind: D\n", "{\"kind\":\"A\"}\n---\nkind: D\n"},
		{"JSON behind YAML needs one", "kind: D\n", `{"kind":"A"}`, "kind: D\n---\n{\"kind\":\"A\"}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse("1.yaml", []byte(tc.first))
			if err != nil {
				t.Fatal(err)
			}
			second, err := Parse("2.yaml", []byte(tc.second))
			if err != nil {
				t.Fatal(err)
			}
			joined, err := Join(s, second)
			if err != nil {
				t.Fatal(err)
			}
			if string(s.Bytes()) != tc.first || string(second.Bytes()) != tc.second {
				t.Errorf("the streams change: %q, %q", s.Bytes(), second.Bytes())
			}
			if d := cmp.Diff(tc.want, string(joined)); d != "" {
				t.Error(d)
			}
			again, err := Parse("3.yaml", joined)
			if err != nil || len(again.Objects()) != len(s.Objects())+len(second.Objects()) {
				t.Errorf("%d objects, %v", len(again.Objects()), err)
			}
		})
	}
}

// TestJoin_LetsNoBlockScalarGrow has a text without a line break at its end, which would become part of a value.
func TestJoin_LetsNoBlockScalarGrow(t *testing.T) {
	t.Parallel()
	first, err := Parse("1.yaml", []byte("a: b\n---\na: |\n  b"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := Parse("2.yaml", []byte("c: d\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "ending 1.yaml: document 2: its last line belongs to a block scalar (|) and lacks a line break, which would be part " +
		"of the value; end it with a line break, or write |- for |"
	if joined, err := Join(first, second); err == nil || err.Error() != want {
		t.Errorf("%v\n%s", err, joined)
	}
}

// TestApply_Refuses has edits that make no sense, and values that do not stand at their place, or not only for it. The
// error names that place with its line, once for all edits, and says what to write instead.
func TestApply_Refuses(t *testing.T) {
	t.Parallel()
	insert := func(path ...string) Edit { return Edit{Op: Insert, Path: path, Value: "x"} }
	good := Edit{Op: SetScalar, Path: []string{"good"}, Value: "x"}
	for _, tc := range []struct {
		name, in string
		edits    []Edit
		want     string
	}{
		{"a list that is a string", "a: ${FILES}\n", []Edit{good, {Op: Insert, Path: []string{"a"}, Value: "x"}}, "document 1, line 1: a[0]: the value is a string, not a list"},
		{"a list that is a mapping", "a: {b: c}\n", []Edit{good, {Op: Insert, Path: []string{"a"}, Value: "x"}}, "document 1, line 1: a[0]: the value is a mapping, not a list"},
		{"a path through a list", "a: [b]\n", []Edit{good, {Op: Insert, Path: []string{"a", "b"}, Value: "x"}}, "document 1, line 1: a.b[0]: a is a list, not a mapping"},
		{"a scalar in the place of a list", "a: [b]\n", []Edit{good, {Op: SetScalar, Path: []string{"a"}, Value: "x"}}, "document 1, line 1: a: the value is a list, not a scalar"},
		{"an index behind the end", "a: [b]\n", []Edit{good, {Op: Insert, Path: []string{"a"}, Index: 2, Value: "x"}}, "document 1, line 1: a[2]: the index is out of range, the list has 1 items"},
		{"a negative index", "a: [b]\n", []Edit{good, {Op: Remove, Path: []string{"a"}, Index: -1}}, "document 1, line 1: a[-1]: the index is out of range, the list has 1 items"},
		{"an item of a list that is absent", "a: b\n", []Edit{good, {Op: Remove, Path: []string{"x", "y"}}}, "document 1, line 1: x.y[0]: the index is out of range, the list has 0 items"},
		{"an empty path", "a: b\n", []Edit{good, {Op: Insert, Value: "x"}}, "document 1, line 1: [0]: the path is empty"},
		{"no operation", "a: b\n", []Edit{good, {Path: []string{"x"}, Value: "x"}}, "document 1, line 1: x[0]: unknown operation 0"},
		{"a value of another type", "a: b\n", []Edit{good, {Op: Insert, Path: []string{"x"}, Value: 1.5}}, "document 1, line 1: x[0]: values of type float64 are not supported"},
		{"no value", "a: b\n", []Edit{good, {Op: SetScalar, Path: []string{"x"}}}, "document 1, line 1: x: values of type <nil> are not supported"},
		{"a mapping as scalar", "a: b\n", []Edit{good, {Op: SetScalar, Path: []string{"x"}, Value: Map{}}}, "document 1, line 1: x: manifest.Map is not a scalar"},
		{"invalid UTF-8", "a: b\n", []Edit{good, {Op: Insert, Path: []string{"x"}, Value: []any{"\xff"}}}, "document 1, line 1: x[0]: a new value is invalid UTF-8"},
		{"a key that occurs twice", "a: b\n", []Edit{good, {Op: Insert, Path: []string{"x"}, Value: Map{{"k", "1"}, {"k", "2"}}}}, `document 1, line 1: x[0]: key "k" occurs twice in a new value`},
		{"a path that is to stay as a whole", "a: b\n", []Edit{good, {Op: RemoveKey, Path: []string{"a"}, Keep: 1}}, "document 1, line 1: a: 1 elements to keep in a path of 1"},
		{
			"an alias", "a: &a\n- b\nspec:\n  l: *a\n",
			[]Edit{insert("spec", "l"), insert("spec", "l")},
			"document 1, line 4: spec.l is an alias (*a); write the list out",
		},
		{
			"an alias on the way", "a: &a {l: []}\nb: c\nspec: *a\n",
			[]Edit{insert("spec", "l")},
			"document 1, line 3: spec is an alias (*a); write the mapping out",
		},
		{
			"a merge key", "a: &a\n  l: [b]\nspec:\n  m: n\n  <<: *a\n",
			[]Edit{insert("spec", "l"), insert("spec", "p", "l")},
			"document 1, line 5: spec has a merge key (<<); write out what it adds",
		},
		{
			"a merged key that is to go", "a: &a {b: [c]}\nd:\n  <<: *a\n",
			[]Edit{{Op: Remove, Path: []string{"d", "b"}, Keep: 1}},
			"document 1, line 3: d has a merge key (<<); write out what it adds",
		},
		{
			"a list that is used twice", "a: &a [b]\nc: *a\n",
			[]Edit{insert("a")},
			"document 1, line 1: a has an anchor (&a); remove it, and write the value out where its aliases are",
		},
		{
			"a mapping that is used twice", "a: &a\n  b: c\nd: *a\n",
			[]Edit{{Op: SetScalar, Path: []string{"a", "b"}, Value: "x"}},
			"document 1, line 1: a has an anchor (&a); remove it, and write the value out where its aliases are",
		},
		{
			"a tag", "kind: A\nmetadata: !!map\n  name: b\nspec:\n  l: !!seq\n  - a\n",
			[]Edit{insert("spec", "l"), insert("metadata", "l")},
			"document 1, line 5: A b: spec.l has a tag (!!seq); remove it\n" +
				"editing in.yaml: document 1, line 2: A b: metadata has a tag (!!map); remove it",
		},
		{
			"an item of a list", "kind: List\nitems:\n- &i\n  kind: A\n  metadata: {name: b, namespace: c}\n- *i\n",
			[]Edit{insert("spec", "l")},
			"document 1, line 3: A c/b: the object has an anchor (&i); remove it, and write the value out where its aliases are",
		},
		{
			"a list of aliases", "x: &x\n- kind: A\nkind: List\nitems: *x\n",
			[]Edit{insert("spec", "l")},
			"document 1, line 4: A: the list is an alias (*x); write the list out",
		},
		{
			"a block scalar without a final line break", "kind: A\nd:\n  e: |\n    f",
			[]Edit{insert("spec", "l")},
			"document 1, line 1: A: spec.l[0]: its last line belongs to a block scalar (|) and lacks a line break, which would be " +
				"part of the value; end it with a line break, or write |- for |",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse("in.yaml", []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			err = s.Objects()[0].Apply(tc.edits)
			if want := "editing in.yaml: " + tc.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if string(s.Bytes()) != tc.in {
				t.Errorf("the text changes: %q", s.Bytes())
			}
		})
	}
}

// TestApply_WritesScalarsThatAreReadBack sets rude strings in block documents, a flow document and JSON.
func TestApply_WritesScalarsThatAreReadBack(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("no,fold ", 2000)
	for i, value := range []string{
		"", " ", "0600", "0o600", "1e3", "1:30", "1_000", "0x1F", ".5", "-", "- a", "?", ":", "a: b", "a:b", "a #b", "#", "~", "null", "yes", "No", "on", "y", "true", "=", "<<",
		"2026-01-01", "a1", "e1", "1e", "b:c", "b:", "a:b:", "Null", "NO", "oN", "nan", "inf", ".inf", "0899", "99999999999999999999", "/", "/:", "x-", "x.", "'", "''a", `"`, `\`, `\n`, "$A ${B}", "`x`", "%a", "@a", "&a", "*a", "!a", "|", ">", "{{ x }}", "{a}", "[a]", ",", "a,b", "::1/128", "täst.example", "日本",
		"😀", "a ", " a", "\ta", "a\tb", "a\n", "a\nb", "a\n\n", "\na", "\n", " \n", "a\n b\n", " a\nb", "\ta\nb\n", "a \nb", "a\n  \nb", "a\n  ", "a\r\nb", "a\rb", "a\u0085b", "a\u2028b\nc",
		"\uFEFFa", "a\x00b", "a\x1b[0m\nb", "a\x7f", "---", "---\na", "a\n---\nb\n...\n", "# a\nb", "%YAML\nb", "key: |\n  x\n", long,
	} {
		for _, in := range []string{
			"spec:\n  l:\n  - a\n", "spec:\n    l:\n        - a\n    z:\n", "spec: {l: [a]}\n",
			"{\n\t\"spec\": {\n\t\t\"l\": [\n\t\t\t\"a\"\n\t\t]\n\t}\n}\n",
		} {
			s, err := Parse("in.yaml", []byte(in))
			if err != nil {
				t.Fatal(err)
			}
			o := s.Objects()[0]
			item := Map{{"k" + value, value}}
			if len(value) > 100 {
				item = Map{{"k", value}}
			}
			if err := o.Apply([]Edit{
				{Op: Insert, Path: []string{"spec", "l"}, Value: value},
				{Op: Insert, Path: []string{"spec", "l"}, Index: 2, Value: item},
				{Op: SetScalar, Path: []string{"spec", "s"}, Value: value},
			}); err != nil {
				t.Errorf("%d: %q: %v", i, value, err)
				continue
			}
			var got map[string]any
			if err := k8syaml.UnmarshalStrict(s.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			spec := got["spec"].(map[string]any)
			if want := []any{value, "a", map[string]any{item[0].Name: value}}; !cmp.Equal(want, spec["l"]) ||
				spec["s"] != value {
				t.Errorf("%q: got %v", value, spec)
			}
		}
	}
}
