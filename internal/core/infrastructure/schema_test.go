package infrastructure_test

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
)

// schema is what a provider's API has of a kind: the networks, hosts and names of its cluster object.
type schema struct {
	// From is the provider's repository or module, with the version or commit and the version of the API.
	From string `json:"from"`
	// Fields are the types of fields by their paths. Older are those of versions before.
	Fields map[string]string `json:"fields"`
	Older  map[string]string `json:"older"`
	// Unread says why the product does not read a field of Fields.
	Unread map[string]string `json:"unread"`
}

// TestTable_AgreesWithTheAPIsOfProviders compares the fields that the table reads with those that there are, and those
// that there are with the ones that the table reads.
func TestTable_AgreesWithTheAPIsOfProviders(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/schemas.yaml")
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]schema{}
	if err := yaml.UnmarshalStrict(text, &schemas); err != nil {
		t.Fatal(err)
	}
	for _, kind := range infrastructure.Kinds() {
		has, read := schemas[kind], infrastructure.Fields(kind)
		delete(schemas, kind)
		if len(read) > 0 && has.From == "" {
			t.Errorf("there is no schema of %s", kind)
		}
		for path, want := range read {
			if got := has.Fields[path]; got != want && has.Older[path] != want {
				t.Errorf("%s of %s is a %s, and %q in %s", path, kind, want, got, has.From)
			}
		}
		for path := range has.Fields {
			if _, reads := read[path]; !reads && has.Unread[path] == "" {
				t.Errorf("%s of %s is not read, and nothing says why", path, kind)
			}
		}
	}
	for kind := range schemas {
		t.Errorf("%s is not in the table", kind)
	}
}
