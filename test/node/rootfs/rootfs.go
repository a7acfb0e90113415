//go:build node

// Package rootfs provides what a test node and its surroundings are made of:
// the root file system of a Debian 12 with systemd, cloud-init and containerd,
// the program that applies Ignition configs, the programs of Kubernetes, and
// squid. All are made by scripts in hack/ and kept in the user's cache, so that
// only the first run pays for them.
package rootfs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cannot is the exit status by which a script says that this machine lacks
// something that it cannot get (EX_TEMPFAIL of sysexits.h).
const cannot = 75

// Dir returns the folder of the root file system. It must not be written to.
// Dir skips the test, with the reason, where a node cannot be booted.
func Dir(t *testing.T) string {
	t.Helper()
	return script(t, "node-rootfs.sh")
}

// Ignition returns the path of Flatcar's ignition program. It skips the test,
// with the reason, where that cannot be built.
func Ignition(t *testing.T) string {
	t.Helper()
	return script(t, "node-ignition.sh")
}

// Kubernetes returns the folder of the programs that a Kubernetes node runs,
// those in its containers included. It skips the test, with the reason, where
// they cannot be built.
func Kubernetes(t *testing.T) string {
	t.Helper()
	return script(t, "node-kube.sh")
}

// Squid returns the folder of a root file system with squid. It skips the test,
// with the reason, where there are no packages of it.
func Squid(t *testing.T) string {
	t.Helper()
	return script(t, "node-squid.sh")
}

// Build builds the command in a folder below test/node, linked statically, into another folder and returns its path.
func Build(t *testing.T, folder, into string) string {
	t.Helper()
	return build(t, "./test/node/"+folder, into, "-tags=e2e,node")
}

// Product is Build for the product, which is built as for its image.
func Product(t *testing.T, into string) string {
	t.Helper()
	return build(t, "./cmd/capi-proxy-patcher", into, "-ldflags=-s -w")
}

func build(t *testing.T, command, into string, flags ...string) string {
	t.Helper()
	path := filepath.Join(into, filepath.Base(command))
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-trimpath", "-o", path}, flags...), command)...) //nolint:gosec // a command of this repository
	cmd.Dir, cmd.Env = repository(t), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", command, err, out)
	}
	return path
}

// script runs a script of hack/ and returns the path that it prints.
func script(t *testing.T, name string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(repository(t), "hack", name)) //nolint:gosec // a script of this repository
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == cannot {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		t.Skip(lines[len(lines)-1])
	}
	if err != nil {
		t.Fatalf("running hack/%s: %v\n%s", name, err, &stderr)
	}
	return strings.TrimSpace(stdout.String())
}

// repository returns the folder of go.mod, which is above that of a test.
func repository(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; filepath.Dir(folder) != folder; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
	}
	t.Fatal("no go.mod above the folder of the test")
	return ""
}
