package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDefects_LetDocumentsPass reads documents that make no object, or no certain one. They come out unchanged, and the
// objects beside them can be edited.
func TestDefects_LetDocumentsPass(t *testing.T) {
	t.Parallel()
	const twice = "key %q occurs twice in one mapping"
	const filled = "a line contains only a template; resolve it first, with clusterctl generate cluster or the template's own tool"
	for _, tc := range []struct {
		name, in string
		want     []string // place, cause and kinds of objects
	}{
		{"a key that occurs twice", "kind: A\nb: 2\nkind: B\n", []string{"1, line 3: " + fmt.Sprintf(twice, "kind") + " B"}},
		{"a key that occurs twice below a list", "a:\n- b: 1\n  b: 2\n", []string{"1, line 3: " + fmt.Sprintf(twice, "b") + " "}},
		{"keys that are equal only in JSON", "8: a\n010: b\n", []string{"1, line 2: " + fmt.Sprintf(twice, "8") + " "}},
		{"booleans of YAML 1.1 as keys", "yes: a\n\"true\": b\n", []string{"1, line 2: " + fmt.Sprintf(twice, "true") + " "}},
		{"in JSON Lines", "{\"a\":1}\n{\"b\":2,\n\"b\":3}\n", []string{"2, line 3: " + fmt.Sprintf(twice, "b") + " "}},
		{"in one item", "kind: List\nitems:\n- kind: A\n- kind: B\n  c: 1\n  c: 2\n- kind: C\n", []string{"1, line 6: " + fmt.Sprintf(twice, "c") + " B"}},
		{"in two items", "kind: List\nitems:\n- {kind: A, x: 1, x: 2}\n- kind: B\n  c: 1\n  c: 2\n", []string{
			"1, line 3: " + fmt.Sprintf(twice, "x") + " A", "1, line 6: " + fmt.Sprintf(twice, "c") + " B",
		}},
		{"beside the items", "kind: List\nitems:\n- kind: A\n- kind: B\nm: {x: 1, x: 2}\n", []string{"1, line 5: " + fmt.Sprintf(twice, "x") + " A B"}},
		{"two lists of items", "kind: List\nitems:\n- kind: A\nitems:\n- kind: B\n- kind: C\n", []string{"1, line 4: " + fmt.Sprintf(twice, "items") + " B C"}},
		{"a list as a document", "kind: A\n---\n- a\n- a\n---\nkind: B\n", []string{"2, line 3: the document is a list, not an object"}},
		{"a JSON list", "[{\"kind\": \"A\"}]\n", []string{"1, line 1: the document is a list, not an object"}},
		{"a JSON list with what only JSON has", `[{"a":"\ud83d\ude00\/"}]`, []string{"1, line 1: the document is a list, not an object"}},
		{"JSON lists behind each other", "[\"\\u003c\"]\n[1]\n{\"kind\":\"B\"}\n", []string{
			"1, line 1: the document is a list, not an object", "2, line 2: the document is a list, not an object",
		}},
		{"a variable as a line", "kind: A\nspec:\n  ${EXTRA}\n  b: c\n", []string{"1, line 3: " + filled + " A"}},
		{"a variable between items", "kind: A\nspec:\n- a\n${EXTRA:=\"x\"}\n- b\n", []string{"1, line 4: " + filled + " A"}},
		{"a variable as a document", "kind: A\n---\n${EXTRA}\n---\nkind: B\n", []string{"2, line 3: " + filled}},
		{"Go templates as lines", "{{- if .Values.x }}\nkind: A\nspec:\n  {{- toYaml . | nindent 2 }}\n{{- end }}\n", []string{"1, line 1: " + filled + " A"}},
		{"a Go template as a document", "{{ template \"x\" }}\n---\nkind: B\n", []string{"1, line 1: " + filled}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse("in.yaml", []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			set := []Edit{{Op: SetScalar, Path: []string{"x"}, Value: "v"}}
			var got []string
			rest := s.Objects()
			for _, d := range s.Defects() {
				text := strings.TrimPrefix(d.Place, "in.yaml: document ") + ": " + d.Cause
				for _, o := range d.Objects {
					text += " " + o.Kind()
					if err := o.Apply(set); err == nil || !strings.HasSuffix(err.Error(), d.Cause) {
						t.Errorf("edited: %v", err)
					}
					rest = slices.DeleteFunc(rest, func(other *Object) bool { return other == o })
				}
				got = append(got, text)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
			if string(s.Bytes()) != tc.in {
				t.Errorf("got %q", s.Bytes())
			}
			for _, o := range rest {
				if err := o.Apply(set); err != nil {
					t.Error(err)
				}
			}
			if n := strings.Count(string(s.Bytes()), `"v"`) + strings.Count(string(s.Bytes()), "x: v"); n != len(rest) {
				t.Errorf("%d of %d objects are edited in\n%s", n, len(rest), s.Bytes())
			}
		})
	}
}
