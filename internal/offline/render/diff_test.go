package render_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDiff_AppliesWithPatch takes the difference of every golden input to the output with the program that it is for,
// as is, with Windows line breaks, and without a line break at its end.
func TestDiff_AppliesWithPatch(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("patch")
	if err != nil {
		t.Skip("there is no patch program")
	}
	wants, err := filepath.Glob("testdata/*/want.yaml") // not the case that is refused
	if err != nil || len(wants) < 8 {
		t.Fatalf("%d cases, %v", len(wants), err)
	}
	for _, want := range wants {
		dir := filepath.Dir(want)
		original := input(t, dir).Inputs[0].Data
		for name, data := range map[string][]byte{
			"as it is": original, "CRLF": bytes.ReplaceAll(original, []byte("\n"), []byte("\r\n")), "no end": bytes.TrimRight(original, "\n"),
		} {
			t.Run(filepath.Base(dir)+" "+name, func(t *testing.T) {
				t.Parallel()
				options := input(t, dir)
				options.Inputs[0].Data = data
				result := run(t, options)
				file := filepath.Join(t.TempDir(), "in.yaml")
				if err := os.WriteFile(file, data, 0o600); err != nil {
					t.Fatal(err)
				}
				command := exec.CommandContext(t.Context(), program, "--quiet", "--binary", "--fuzz=0", file)
				command.Stdin = bytes.NewReader(result.Diff())
				if out, err := command.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s\n%s", err, out, result.Diff())
				}
				if diff := cmp.Diff(string(result.Output), string(read(t, file))); diff != "" {
					t.Errorf("patched (-want +got):\n%s", diff)
				}
			})
		}
	}
}
