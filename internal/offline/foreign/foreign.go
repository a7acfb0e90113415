// Package foreign reads the proxy settings of other systems and makes the data of a proxy Secret of them. It is pure,
// and no text that it returns beside that data holds a credential.
//
// Every input becomes a list of paths and texts, whatever its form. forms.yaml says what each path means.
package foreign

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// Result is what was read.
type Result struct {
	// Data is the data of a proxy Secret. It is not validated, and holds the credentials of the proxy.
	Data map[string]string
	// Cluster and Namespace are those of the Cluster that the text is about, "" if it names none.
	Cluster, Namespace string
	// Notes name what of the text is not in Data, or changed, and why.
	Notes []string
}

//go:embed forms.yaml
var table []byte

// form and section have their meaning from forms.yaml.
type form struct {
	Name, Kind string
	Sections   []section
}

type section struct {
	At            string
	Keys          map[string]string
	Shared, Whole bool
}

// row is one key of one form. The last depth elements of its path are the key.
type row struct {
	section
	kind, role string
	path       []string
	depth      int
}

// matches reports whether the row is about a path in an object of a kind.
func (r row) matches(kind string, path []string) bool {
	want := r.path
	if len(want) > 0 && want[0] == "**" && len(path) >= len(want)-1 {
		want, path = want[1:], path[len(path)-len(want)+1:]
	}
	return (r.kind == "" || r.kind == cmp.Or(kind, "none")) &&
		slices.EqualFunc(want, path, func(w, p string) bool { return w == "*" || w == p })
}

// reader collects settings.
type reader struct {
	rows []row
	// whole are the paths of mappings that are about the proxy only.
	whole []row
	// left is how much more is read, see maxSize.
	left   int
	found  []*settings
	result Result
	// cluster has the names and the network of the Cluster.
	cluster settings
	// bundles are the certificates in ConfigMaps, by name.
	bundles map[string]string
}

func forms() (all []form, err error) {
	if err := yaml.UnmarshalStrict(table, &all); err != nil {
		return nil, fmt.Errorf("internal error: forms.yaml: %w", err)
	}
	return all, nil
}

// Forms returns the names of the known forms.
func Forms() ([]string, error) {
	all, err := forms()
	names := make([]string, 0, len(all))
	for _, f := range all {
		names = append(names, f.Name)
	}
	return names, err
}

// Read reads a text in any of the known forms. Two places with different settings are an error. An error names places
// and keys, never values.
func Read(text []byte) (Result, error) {
	return read(func(r *reader) error { return r.text("", string(text), true) })
}

// ReadVariables reads environment variables. Those that do not concern a proxy are ignored.
func ReadVariables(vars []envfile.Var) (Result, error) {
	return read(func(r *reader) error { return r.variables("the environment", vars) })
}

func read(from func(*reader) error) (Result, error) {
	r := &reader{left: maxSize, bundles: map[string]string{}, cluster: settings{place: "the input"}}
	all, err := forms()
	for _, form := range all {
		for _, s := range form.Sections {
			for key, role := range s.Keys {
				path := strings.Split(strings.TrimPrefix(s.At+"."+key, "."), ".")
				r.rows = append(r.rows, row{s, form.Kind, role, path, strings.Count(key, ".") + 1})
			}
			if s.Whole && !strings.HasPrefix(s.At, "**") {
				r.whole = append(r.whole, row{kind: form.Kind, path: strings.Split(s.At, ".")})
			}
		}
	}
	if err == nil {
		err = from(r)
	}
	if err != nil {
		return Result{}, err
	}
	return r.finish()
}

// plain is a name that cannot hold a credential: no URL, no user with a password.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,100}$`)

// placeOf prints a path below a place.
func placeOf(place string, path ...string) string {
	for i, name := range path {
		if !plain.MatchString(name) {
			path = slices.Concat(path[:i], []string{"(a name that is not shown)"}, path[i+1:])
		}
	}
	text := strings.Join(path, ".")
	if text != "" && place != "" {
		return place + ": " + text
	}
	return cmp.Or(place, text, "the configuration")
}
