package noproxy

import (
	"strings"
	"testing"
)

// FuzzParseEntry proves that what an entry becomes is canonical: parsing each form again gives that form first.
func FuzzParseEntry(f *testing.F) {
	for _, s := range []string{
		"example.net", ".example.net", "*.example.net.", "bücher.example:80", "10.0.0.7/8", "fd00::1", "[fd00::1]:443", "[fd00::]/8",
		"10.0.0.1-10.0.0.200", "fd00::-fd00::ffff", "10.", "1.2.3", "*", "::ffff:10.0.0.1", "xn--bcher-kva.example", "a:0", "http://x", "%", "\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseEntry(text)
		if err != nil {
			if err.Code == "" || err.Message == "" || err.Place.String() != "" {
				t.Fatalf("finding %+v", err)
			}
			return
		}
		if len(p.values) == 0 || len(p.values) > 254 {
			t.Fatalf("%q has %d values", text, len(p.values))
		}
		for _, v := range append(p.values, p.also...) {
			if v != strings.ToLower(v) || strings.ContainsAny(v, ", ") {
				t.Fatalf("%q gives %q", text, v)
			}
			again, err := parseEntry(v)
			if err != nil || again.strict != p.strict && len(p.values) == 1 {
				t.Fatalf("%q gives %q, which gives %+v, %v", text, v, again, err)
			}
			if again.values[0] != v && again.values[len(again.values)-1] != v {
				t.Fatalf("%q gives %q, which gives %q", text, v, again.values)
			}
		}
	})
}
