package manifest

import "testing"

func TestSameName_IgnoresDefaults(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{ // as the same name, as part of another one
		"":                                  {"", ""},
		"a":                                 {"a", "a"},
		"${A}":                              {"${A}", "${A}"},
		`${A:="x"}`:                         {"${A}", "${A:=x}"},
		`${A:='x'}-b`:                       {"${A}-b", "${A:=x}-b"},
		"${A=x}${B:-y}-${_c1-z}":            {"${A}${B}-${_c1}", "${A=x}${B:-y}-${_c1-z}"},
		`${A:={"k": {}}}-${B:="${C:="d"}"}`: {"${A}-${B}", `${A:={"k": {}}}-${B:=${C:="d"}}`},
		"${A:=}":                            {"${A}", "${A:=}"},
		`${A:="}`:                           {"${A}", `${A:="}`},
		"${A:=x":                            {"${A:=x", "${A:=x"},
		"${A:x}${A^^}${A/-/_}${A:0:5}":      {"${A:x}${A^^}${A/-/_}${A:0:5}", "${A:x}${A^^}${A/-/_}${A:0:5}"},
		"${1:=x}$A{}$":                      {"${1:=x}$A{}$", "${1:=x}$A{}$"},
	} {
		if got := SameName(in); got != want[0] {
			t.Errorf("%q is the same name as %q, want %q", in, got, want[0])
		}
		if got := PartOfName(in); got != want[1] {
			t.Errorf("%q is %q as a part, want %q", in, got, want[1])
		}
	}
}
