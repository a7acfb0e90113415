package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// What people met, as inputs with the right answer. Each folder of testdata/field has a file args with one command a
// line, and want.txt with what they print. A word of a command that is a file of the folder is read from there.
func TestField_IsGolden(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/field/*/args")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, args := range cases {
		folder := filepath.Dir(args)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			commands, err := os.ReadFile(args)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for command := range strings.Lines(string(commands)) {
				words := strings.Fields(command)
				for i, word := range words {
					if _, err := os.Stat(filepath.Join(folder, word)); err == nil {
						words[i] = filepath.Join(folder, word)
					}
				}
				status, stdout, stderr := run(t, "", words...)
				fmt.Fprintf(&got, "$ capi-proxy-patcher %s%s%s[exit status %d]\n", command, stdout, stderr, status)
			}
			golden.Equal(t, filepath.Join(folder, "want.txt"), strings.ReplaceAll(got.String(), folder+"/", ""))
		})
	}
}
