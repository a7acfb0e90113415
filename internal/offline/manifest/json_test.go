package manifest

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// decodeAll returns the values of a JSON stream.
func decodeAll(t *testing.T, data []byte) []any {
	t.Helper()
	var all []any
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var value any
		err := decoder.Decode(&value)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("not JSON: %v\n%s", err, data)
		}
		all = append(all, value)
	}
}

// TestJSON_StaysJSON edits JSON in the forms in which programs write it. Everything else is unchanged.
func TestJSON_StaysJSON(t *testing.T) {
	t.Parallel()
	const rude = "tab\there \\ \"q\" / \u2028 \u0085 \x7f \x01 😀\nnext"
	for name, in := range map[string]string{
		"compact":                      `{"kind":"A","spec":{"l":["a"]}}`,
		"indented with tabs":           "{\n\t\"kind\": \"A\",\n\t\"spec\": {\n\t\t\"l\": [\n\t\t\t\"a\"\n\t\t]\n\t}\n}\n",
		"an empty list and no spec":    "{\"kind\": \"A\", \"x\": []}\n",
		"escapes":                      `{"k\/x\ud83d\ude00":"\ud83d\ude00 \/ \t \b \f \u0000 \u2028","spec":{"l":["\/","\u003c","a"]},"kind":"A"}` + "\n",
		"characters YAML has not":      "{\"k\x7f\u0080\ufffe\": \"\x7f\ufeff\u0085\", \"kind\": \"A\", \"spec\": {\"l\": [\"a\"]}}\n",
		"numbers":                      `{"a":1E5,"b":-0,"c":1.0,"d":1e-7,"e":12345678901234567890,"f":9007199254740993,"kind":"A","spec":{"l":["a"]}}`,
		"many escapes of kubectl":      `{"kind":"A","x":["` + strings.Repeat(`\u003c","\u0026`, 200) + `"],"spec":{"l":["\u003e"]}}` + "\n",
		"many blanks of Python":        `{"kind": "A", "x": [` + strings.Repeat(`{"a": "\u00e9"}, `, 200) + `1], "spec": {"l": ["a"]}}` + "\n",
		"lines":                        "{\"kind\":\"A\",\"spec\":{\"l\":[\"a\"]}}\n{\"kind\":\"B\",\"spec\":{}}\n\n{\"kind\":\"C\"}",
		"one value behind the other":   "{\n  \"kind\": \"A\"\n}{\"kind\":\"B\"} \t{\"kind\":\"C\"}\r\n",
		"lines with a byte order mark": "\uFEFF{\"kind\":\"A\"}\n{\"kind\":\"B\"}\n",
		"what looks like a marker":     "{\"kind\":\"A\",\"x\":\n[\n1,\n2]\n}\n{\"kind\":\"B\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse("in.json", []byte(in))
			if err != nil {
				t.Fatal(err)
			}
			if string(s.Bytes()) != in {
				t.Fatalf("unedited: %q", s.Bytes())
			}
			before := decodeAll(t, []byte(strings.TrimPrefix(in, bom)))
			if len(s.Objects()) != len(before) {
				t.Fatalf("%d objects", len(s.Objects()))
			}
			var changes []Change
			for _, o := range s.Objects() {
				changes = append(changes, Change{o, []Edit{
					{Op: Insert, Path: []string{"spec", "l"}, Value: Map{{"c\t", rude}, {"path", "/etc/a"}}},
					{Op: Insert, Path: []string{"spec", "l"}, Index: 1, Value: rude},
					{Op: SetScalar, Path: []string{"metadata", "annotations", "a/b"}, Value: "1"},
				}})
			}
			if err := s.Apply(changes); err != nil {
				t.Fatal(err)
			}
			after := decodeAll(t, bytes.TrimPrefix(s.Bytes(), []byte(bom)))
			for i := range before {
				want, _ := before[i].(map[string]any)
				spec, _ := want["spec"].(map[string]any)
				list, _ := spec["l"].([]any)
				want["spec"] = map[string]any{"l": append([]any{map[string]any{"c\t": rude, "path": "/etc/a"}, rude}, list...)}
				want["metadata"] = map[string]any{"annotations": map[string]any{"a/b": "1"}}
				if d := cmp.Diff(want, after[i]); d != "" {
					t.Errorf("%s\n%s", d, s.Bytes())
				}
			}
		})
	}
}

func TestJSON_ReadsValuesAsKubectlDoes(t *testing.T) {
	t.Parallel()
	s, err := Parse("in.json", []byte(`{"a":"\ud83d\ude00\/\t","b":[1E2,1.5,true,null],"c":9007199254740993,"y":"no"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": "😀/\t", "b": []any{float64(100), 1.5, true, nil}, "c": int64(9007199254740993), "y": "no"}
	if d := cmp.Diff(want, s.Objects()[0].Value()); d != "" {
		t.Error(d)
	}
}
