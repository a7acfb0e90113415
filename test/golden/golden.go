// Package golden compares what a program makes with files of the repository. It serves tests.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update is set by make golden-update.
var update = flag.Bool("update", false, "rewrite golden files") //nolint:gochecknoglobals // a flag

// Equal fails if got is not what the golden file at path has.
func Equal[Text ~string | ~[]byte](t *testing.T, path string, got Text) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path) //nolint:gosec // of a test
	if err != nil {
		t.Fatalf("%v; make golden-update writes it", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s\nOther bytes on nodes replace Machines: see CONTRIBUTING.md.", path, diff)
	}
}
