package jsonread_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
)

// agree compares a Reader with encoding/json, in what it accepts and in what it reads.
func agree(t *testing.T, text []byte) {
	t.Helper()
	skipping := jsonread.New(text)
	skipping.Skip()
	accepted := skipping.End() == nil
	if accepted != json.Valid(text) {
		t.Fatalf("%q: accepted %v, encoding/json says %v", text, accepted, !accepted)
	}
	reader := jsonread.New(text)
	got := reader.Value()
	var want any
	decoded := json.Unmarshal(text, &want) == nil // not a number out of range
	if err := reader.End(); (err == nil) != decoded {
		t.Fatalf("%q: reading ends with %v, encoding/json accepts it: %v", text, err, decoded)
	}
	if !decoded {
		return
	}
	if !reflect.DeepEqual(want, got) { // cmp takes minutes for deep nesting
		t.Fatalf("%q: got %v, encoding/json says %v", text, got, want)
	}
}

// agreeOnCopies compares RawLike with Raw in an array of copies of a text.
func agreeOnCopies(t *testing.T, text []byte) {
	t.Helper()
	array := slices.Concat([]byte("["), text, []byte(","), text, []byte("]"))
	read := func(like bool) (texts []string, err error) {
		r := jsonread.New(array)
		var last []byte
		for range r.Elements {
			if like {
				last = r.RawLike(last)
			} else {
				last = r.Raw()
			}
			texts = append(texts, string(last))
		}
		return texts, r.End()
	}
	want, wrong := read(false)
	got, err := read(true)
	if !slices.Equal(got, want) || (err == nil) != (wrong == nil) || err != nil && err.Error() != wrong.Error() {
		t.Fatalf("%q: got %q, %v; want %q, %v", array, got, err, want, wrong)
	}
}

func TestRawLike_IsRaw(t *testing.T) {
	t.Parallel()
	for _, text := range append(texts(), `1,12`, `"a","a"b`, `{},{}1`, `{"a":1},{"a":1}}`, `[1],[1]2`, `{"a":{}},{"a":{}`, ` {"a":1} ,{"a":1,"b":2}`) {
		agreeOnCopies(t, []byte(text))
	}
	text := []byte(`{"a":["b"]} `)
	r := jsonread.New(text)
	if got := r.RawLike([]byte(`{"a":["b"]}`)); string(got) != `{"a":["b"]}` || &got[0] != &text[0] || r.End() != nil {
		t.Errorf("%s, %v", got, r.End())
	}
}

func texts() []string {
	return []string{
		`{}`, `[]`, `""`, `0`, `null`, `true`, `false`, ` { "a" : [ 1 , -2.5e+3 , "x" ] , "b" : { } } `,
		`{"a":1,"a":2,"a":{"b":1}}`, `{"\u0061":"\ud83d\ude00","ä":"\ud800"}`, "\"\xff\"", "{\"\xff\":1}", `"\/\b\f\n\r\t\"\\"`,
		`1e5`, `1E-5`, `-0`, `0.0`, `1e999`, `[-1e400, 1]`, `{"a":{"b":{"c":[[[{}]]]}}}`, "\t\r\n 1 \t\r\n", `"` + strings.Repeat("é", 3000) + `"`,
		// not JSON
		``, ` `, `{`, `[`, `"`, `"\`, `"\u`, `"\u12`, `"\x"`, `"\u12G4"`, "\"\n\"", "\"\x00\"", `tru`, `nul`, `falsey`, `01`, `-`, `1.`, `1e`, `1e+`, `.5`, `+1`,
		`{,}`, `[,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[1 2]`, `{"a":1 "b":2}`, `{a:1}`, `{"a":1}}`, `[]]`, `1 2`, `{"a":1`, `[1`, `[}`, `{]`, "\ufeff{}", `'a'`, "{\"a\xc0\":1",
		`{"a":1]`, `NaN`, `Infinity`, `/**/1`,
	}
}

func TestReader_ReadsWhatEncodingJSONReads(t *testing.T) {
	t.Parallel()
	for _, text := range texts() {
		agree(t, []byte(text))
	}
	for _, depth := range []int{9999, 10000, 10001} {
		agree(t, []byte(strings.Repeat("[", depth)+strings.Repeat("]", depth)))
		agree(t, []byte(strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth)))
	}
}

func TestReader_AgreesOnEveryPrefix(t *testing.T) {
	t.Parallel()
	const text = `{"a":[1,-2.5e3,true,false,null,"x\u00e9\n\\"],"b":{"c":{},"d":[[]]}}`
	for i := range len(text) + 1 {
		agree(t, []byte(text[:i]))
	}
}

func TestReader_SeesEveryByteOfAString(t *testing.T) {
	t.Parallel()
	for before := range 20 {
		for after := range 10 {
			for c := range 256 {
				agree(t, []byte(`"`+strings.Repeat("\x80é!#[]~\x7f", 3)[:before]+string([]byte{byte(c)})+strings.Repeat("#", after)+`"`))
			}
		}
	}
}

func TestReader_SkipsValuesThatAreNotRead(t *testing.T) {
	t.Parallel()
	r := jsonread.New([]byte(`{"skip":{"x":[1,{"y":"}"}]},"list":[1,"two",{"three":3}],"want":"got","not":7}`))
	var got []string
	for name := range r.Members {
		switch string(name) {
		case "want":
			text, is := r.Text()
			got = append(got, text)
			if !is {
				t.Error("a string is not one")
			}
		case "not":
			if text, is := r.Text(); is || text != "" {
				t.Errorf("a number is the string %q", text)
			}
		case "list":
			for i := range r.Elements {
				if i == 1 {
					text, _ := r.Text()
					got = append(got, text)
				}
			}
		}
	}
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"two", "got"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMembers_YieldNothingForOtherValues(t *testing.T) {
	t.Parallel()
	r := jsonread.New([]byte(`[{"a":1},[],"x",null,5]`))
	for range r.Elements {
		for name := range r.Members {
			if string(name) != "a" {
				t.Errorf("name %q", name)
			}
		}
	}
	if err := r.End(); err != nil {
		t.Error(err)
	}
}

func TestRaw_IsTheTextOfTheValue(t *testing.T) {
	t.Parallel()
	r := jsonread.New([]byte(` { "a" :  [ 1, { } ]  } `))
	for range r.Members {
		if got := string(r.Raw()); got != `[ 1, { } ]` {
			t.Errorf("got %q", got)
		}
	}
	if err := r.End(); err != nil {
		t.Error(err)
	}
}

func TestReader_FailsWhenItIsBrokenOff(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"a":1,"b":2}`, `[1,2]`} {
		r := jsonread.New([]byte(text))
		for range r.Members {
			break
		}
		for range r.Elements {
			break
		}
		if r.End() == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestReader_ErrorsNameThePositionAndNotTheText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"s3cret":s3cret}`: "reading JSON at byte 10: not a value",
		`{"s3cret":"s3cret`: "reading JSON: the text ends too early",
		`{"s3cret":1} x`:    "reading JSON at byte 13: text after the end",
		`{"a" 1}`:           "reading JSON at byte 5: expected a colon",
		`{1:1}`:             "reading JSON at byte 1: expected a name",
		`[1 2]`:             "reading JSON at byte 3: expected a comma or the end",
	} {
		r := jsonread.New([]byte(text))
		r.Skip()
		if err := r.End(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, text := range texts() {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{},{"a":1},{"a":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		agree(t, text)
		agreeOnCopies(t, text)
	})
}

func BenchmarkSkip(b *testing.B) {
	text := []byte(`[` +
		strings.TrimSuffix(strings.Repeat(`{"name":"node-labels","value":"a=b,c=d","list":[1,true,null]},`, 2000), ",") + `]`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		r := jsonread.New(text)
		r.Skip()
		if err := r.End(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCount_IsNeverLessThanTheNumberOfValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`1`: 1, `"a,b{[\",\\"`: 1, `[1,2,3]`: 4, `{"a":1,"b":{"c,{":["x","y"]}}`: 6, `[[],[]]`: 5, `"open \`: 1, ``: 1,
	} {
		if got := jsonread.Count([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
		for limit := range 8 {
			if got := jsonread.HasMore([]byte(text), limit); got != (want > limit) {
				t.Errorf("%s: has more than %d values is %t", text, limit, got)
			}
		}
	}
}
