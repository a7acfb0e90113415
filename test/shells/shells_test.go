package shells

import (
	"slices"
	"testing"
)

func TestInstalled_FindsEveryShell(t *testing.T) {
	t.Parallel()
	installed := Installed(t)
	for _, shell := range known() {
		t.Run(shell.Name, func(t *testing.T) {
			t.Parallel()
			if !slices.ContainsFunc(installed, func(s Shell) bool { return s.Name == shell.Name }) {
				t.Skipf("%s is not installed, so no test runs it", shell.Name)
			}
		})
	}
}
