package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFigures_ExceedABoundOfTheirSize(t *testing.T) {
	t.Parallel()
	f := &figures{clusters: 60}
	f.add("requests", 8.004)
	f.addWithFloor("memory", 24, 57.25)
	for name, test := range map[string]struct {
		bounds []bound
		want   string
	}{
		"none":                {nil, ""},
		"equal":               {[]bound{{Figure: "memory", Most: 24}}, ""},
		"exceeded":            {[]bound{{Figure: "requests", Most: 8}}, "requests: 8.00, at most 8.00"},
		"exceeded 0":          {[]bound{{Figure: "memory"}}, "memory: 24.0, at most 0.000"},
		"of another size":     {[]bound{{Figure: "memory", Clusters: 1000, Most: 1}}, ""},
		"of this size":        {[]bound{{Figure: "memory", Clusters: 60, Most: 1}}, "memory: 24.0, at most 1.00"},
		"of no figure":        {[]bound{{Figure: "memroy", Clusters: 1000, Most: 1}}, `nothing measures "memroy"`},
		"the second of three": {[]bound{{Figure: "requests", Most: 9}, {Figure: "memory", Most: 9}, {Figure: "memory", Clusters: 2}}, "memory"},
	} {
		var out strings.Builder
		err := f.print(&out, test.bounds)
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if !strings.Contains(out.String(), "24.0") || !strings.Contains(out.String(), "57.2") {
			t.Errorf("%s: figure or floor is missing in\n%s", name, out.String())
		}
	}
}

func TestBounds_NameWhoNeedsThem(t *testing.T) {
	t.Parallel()
	if bounds, err := readBounds("bounds.json"); err != nil || len(bounds) == 0 {
		t.Errorf("%d bounds: %v", len(bounds), err)
	}
	file := filepath.Join(t.TempDir(), "bounds.json")
	if err := os.WriteFile(file, []byte(`[{"figure": "memory", "most": 1}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readBounds(file); err == nil || !strings.Contains(err.Error(), `"memory" does not say who needs it`) {
		t.Errorf("a bound that nobody needs: %v", err)
	}
}
