package manifest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fuzzSeeds are documents that are written in many ways.
func fuzzSeeds(f *testing.F) []string {
	f.Helper()
	return []string{
		"a: b\n",
		"# comment\n---\nkind: X\nspec:\n  files:\n  - a\n  # end\n\n  x: 1\n",
		"spec:\n    files:\n        - path: a\n          content: |\n            text\n\n            # more\n\n        # about b\n        - b\n",
		"spec: {files: [a, 'b', {c: d}], x: []}\n",
		"{\"kind\": \"X\",\n  \"spec\": {\n    \"files\": [\n      \"a\"\n    ]\n  }\n}\n",
		"apiVersion: v1\nkind: List\nitems:\n- kind: A\n  spec:\n    files: []\n- kind: B\n  spec: {}\n",
		"a: &x\n- 1\nspec:\n  files: *x\n",
		"base: &b\n  files: [x]\nspec:\n  <<: *b\n  y: ${Z:=[\"a\"]}\n",
		"spec:\r\n  files:\r\n  - 'a\r\n    b'\r\n  - >-\r\n    c\r\n    d",
		"%YAML 1.2\n---\nspec:\n  files: # why\n  - |+\n    a\n\n...\n# end\n---\nspec: ~\n",
		"spec:\n  files:\n  - \"a\n- b\"\n  -\n    - x\n  - ? y\n    : z\n",
		"\uFEFFspec:\n  list: [${A}, ${B:=\"c\"}]\n  files: null\n",
		"spec:\n\tfiles: a\n",
		"spec:\n  files:\n  -\ta\n  - !!str 1\n  - &z |2-\n      k\n",
		"spec:\n  {{ if }}\n",
		"{\"spec\": {\"files\": [\"\\ud83d\\ude00\", \"\\/\\t\\u0000\"]}, \"a\\/b\": 1e5}\n{\"kind\":\"B\"} {\"x\":[]}\n",
		"--- \n{\"a\":\n[\n1,\n-0.5e-3]}\n\n",
	}
}

// lists returns the paths of all lists and mappings in a value, in a fixed order.
func lists(value map[string]any, path []string) (found [][]string) {
	keys := make([]string, 0, len(value))
	for key := range value {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		p := append(slices.Clone(path), key)
		switch v := value[key].(type) {
		case []any:
			found = append(found, p)
		case map[string]any:
			found = append(append(found, append(slices.Clone(p), "files")), lists(v, p)...)
		case nil:
			found = append(found, p)
		}
	}
	return found
}

// FuzzApply holds three promises against documents of any form: no edit panics; an edit that succeeds changes the value
// as asked and nothing else, whatever it does to the text; and removing what was inserted by adding lines gives back
// the bytes.
func FuzzApply(f *testing.F) {
	for i, seed := range fuzzSeeds(f) {
		f.Add(seed, uint8(i), uint8(i/2), "x\n  y: '\"$`%\n")
		f.Add(seed, uint8(0), uint8(0), "0600")
	}
	f.Fuzz(func(t *testing.T, data string, target, index uint8, content string) {
		s, err := Parse("in.yaml", []byte(data))
		if err != nil {
			return
		}
		objects := s.Objects()
		if len(objects) == 0 {
			return
		}
		n := int(target) % len(objects)
		o := objects[n]
		before := o.Value()
		paths := append(lists(before, nil), []string{"spec", "new", "files"})
		path := paths[int(target)/len(objects)%len(paths)]
		i := int(index) % (len(at(before, path)) + 1)
		item := Map{{"path", "/etc/a"}, {"content", content}}
		edits := []Edit{{Op: Insert, Path: path, Index: i, Value: item}}
		if err := o.Apply(edits); err != nil {
			if string(s.Bytes()) != data {
				t.Fatalf("a failed edit changes the text: %v", err)
			}
			return
		}
		want := slices.Insert(slices.Clone(at(before, path)), i, any(map[string]any{"path": "/etc/a", "content": content}))
		again, err := Parse("out.yaml", s.Bytes())
		if err != nil {
			t.Fatalf("the output is not a manifest: %v\n%s", err, s.Bytes())
		}
		if got := at(again.Objects()[n].Value(), path); !cmp.Equal(got, want) {
			t.Fatalf("list: %s\nin:\n%s\nout:\n%s", cmp.Diff(want, got), data, s.Bytes())
		}
		for j := range objects {
			if j != n && !cmp.Equal(objects[j].Value(), again.Objects()[j].Value()) {
				t.Fatalf("object %d changes", j)
			}
		}
		onlyAdded := !bytes.Contains(changes(data, s), []byte("\n-"))
		if o.Apply(inverse(edits)) != nil {
			return // refused
		}
		if onlyAdded && len(at(before, path)) > 0 && string(s.Bytes()) != data {
			t.Fatalf("not restored:\n%s\nafter\n%s", changes(data, s), again.Bytes())
		}
	})
}

// FuzzApplyAtOnce holds that several edits of one object, made at once, have the value of one after the other, and that
// taking them back at once restores the bytes.
func FuzzApplyAtOnce(f *testing.F) {
	for i, seed := range fuzzSeeds(f) {
		f.Add(seed, uint8(i), uint8(i/2), "x\n  y: '\"$`%\n")
		f.Add(seed, uint8(1), uint8(9), "0600")
	}
	f.Fuzz(func(t *testing.T, data string, target, second uint8, content string) {
		s, err := Parse("in.yaml", []byte(data))
		if err != nil || len(s.Objects()) == 0 {
			return
		}
		o := s.Objects()[int(target)%len(s.Objects())]
		before := o.Value()
		paths := append(lists(before, nil), []string{"spec", "new", "files"})
		one, two := paths[int(target)%len(paths)], paths[int(second)%len(paths)]
		edits := []Edit{
			{Op: Insert, Path: one, Value: Map{{"path", "/etc/a"}, {"content", content}}},
			{Op: Insert, Path: two, Index: min(len(at(before, two)), 1), Value: content},
			{Op: SetScalar, Path: []string{"new", "key"}, Value: content},
			{Op: Insert, Path: one, Index: len(at(before, one)) + 1, Value: content},
		}
		if slices.Equal(one, two) {
			edits = edits[:3]
		}
		want := o.Value()
		for _, e := range edits {
			if err := e.applyTo(want); err != nil {
				return // one path leads through another one
			}
		}
		if err := o.Apply(edits); err != nil {
			if string(s.Bytes()) != data {
				t.Fatalf("failed edits change the text: %v", err)
			}
			return
		}
		patched := string(s.Bytes())
		if got := o.Value(); !cmp.Equal(got, want) {
			t.Fatalf("%s\nin:\n%s\nout:\n%s", cmp.Diff(want, got), data, patched)
		}
		onlyAdded := !bytes.Contains(changes(data, s), []byte("\n-"))
		if o.Apply(inverse(edits)) != nil {
			return // refused
		}
		if onlyAdded && len(at(before, one)) > 0 && len(at(before, two)) > 0 && string(s.Bytes()) != data {
			t.Fatalf("not restored:\n%s\nafter\n%s", changes(data, s), patched)
		}
	})
}

// FuzzParse holds that a stream comes out as it went in, that its parts are found where messages say, and that no input
// panics.
func FuzzParse(f *testing.F) {
	for _, seed := range fuzzSeeds(f) {
		f.Add([]byte(seed))
		f.Add([]byte(seed + "---\n" + seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("-", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "parsing standard input: document ") {
				t.Fatalf("error without place: %v", err)
			}
			return
		}
		if !bytes.Equal(s.Bytes(), data) {
			t.Fatalf("got %q", s.Bytes())
		}
		for _, o := range s.Objects() {
			if o.Line() < 1 || o.Line() > 1+bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r"))+
				bytes.Count(data, []byte("\xc2"))+bytes.Count(data, []byte("\xe2")) {
				t.Fatalf("line %d", o.Line())
			}
		}
	})
}
