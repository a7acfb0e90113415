// Package shells finds the shells in which tests run what a node runs. A shell that this machine lacks is left out
// without a word; the test of this package is skipped for it, once for all others.
package shells

import (
	"os/exec"
	"slices"
	"testing"
)

// Shell is a shell of this machine.
type Shell struct {
	// Name is dash, bash or busybox.
	Name string
	// Argv is how it is started, the path of its program first. Flags and the script follow.
	Argv []string
}

// With returns how the shell is started with arguments.
func (s Shell) With(args ...string) []string { return slices.Concat(s.Argv, args) }

// known are the shells of nodes.
func known() []Shell {
	return []Shell{{"dash", []string{"dash"}}, {"bash", []string{"bash"}}, {"busybox", []string{"busybox", "sh"}}}
}

// Installed returns the shells that this machine has. A test that finds none is skipped.
func Installed(t *testing.T) []Shell {
	t.Helper()
	var found []Shell
	for _, shell := range known() {
		if path, err := exec.LookPath(shell.Argv[0]); err == nil {
			shell.Argv[0] = path
			found = append(found, shell)
		}
	}
	if len(found) == 0 {
		t.Skip("neither dash, bash nor busybox is installed")
	}
	return found
}
