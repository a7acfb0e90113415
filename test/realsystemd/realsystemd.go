// Package realsystemd lets a test ask the systemd of this machine what
// environment a service gets, instead of a model of systemd.
//
// It runs the installed manager in mount, PID and cgroup namespaces of its
// own: no boot, no network, no container, and nothing is left behind. One
// start takes about a fifth of a second. The manager runs in user mode, which
// parses units, drop-ins and environment files with the same code as the
// system mode and needs no hardware; its unit path is set to that of a system
// manager, so that the paths of a test are the paths of a node.
package realsystemd

import (
	"bytes"
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

//go:embed run.sh
var runScript []byte

// Result is what became of the service.
type Result struct {
	// Started reports whether systemd started the process at all.
	Started bool
	// Environ is the environment of the process, as in /proc/PID/environ.
	Environ map[string]string
	// Log is what the manager printed, mostly warnings about units.
	Log string
}

// Start writes the files, by absolute path, into the private file system,
// starts a service of the given name (without ".service") and returns its
// environment. The unit itself, /etc/systemd/system/NAME.service, is made
// here; its drop-ins and environment files are the caller's, below /etc, /run,
// /usr/local/lib or /usr/lib/systemd/system. Environment files get mode 0600.
//
// Start skips the test, with the reason, where a manager cannot be started:
// without root, without systemd and util-linux, or without the right to make
// namespaces.
func Start(t *testing.T, name string, files map[string][]byte) Result {
	t.Helper()
	manager := requirements(t)
	dir := t.TempDir()
	environ := filepath.Join(dir, "environ")
	unit := "[Unit]\nDefaultDependencies=no\nSuccessAction=exit-force\nFailureAction=exit-force\n" +
		"[Service]\nType=oneshot\nStandardOutput=truncate:" + environ + "\nExecStart=/bin/cat /proc/self/environ\n"
	write(t, filepath.Join(dir, "root/etc/systemd/system", name+".service"), []byte(unit))
	for path, content := range files {
		write(t, filepath.Join(dir, "root", path), content)
	}
	write(t, filepath.Join(dir, "unit"), []byte(name+".service\n"))
	script := filepath.Join(dir, "run.sh")
	write(t, script, runScript)

	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", script, dir) //nolint:gosec // paths of this test
	// Killed halfway, the script could not remove its cgroup; it ends on its own after 22 s at most.
	cmd.Cancel = func() error { return nil }
	cmd.Env = append(os.Environ(), "REALSYSTEMD_BINARY="+manager, "REALSYSTEMD_UNIT_PATH="+strings.Join(unitPath(), ":"))
	out, err := cmd.CombinedOutput()
	log := slices.Concat(out, read(t, filepath.Join(dir, "log")))
	content := read(t, environ)
	if err != nil && !bytes.Contains(log, []byte(name+".service")) {
		t.Fatalf("running systemd: %v\n%s", err, log)
	}
	result := Result{Started: len(content) > 0, Environ: map[string]string{}, Log: string(log)}
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(content), "\x00"), "\x00") {
		if key, value, found := strings.Cut(entry, "="); found {
			result.Environ[key] = value
		}
	}
	return result
}

// unitPath returns the folders of units of a system manager that a test can
// write to, in systemd's order (systemd.unit(5)).
func unitPath() []string {
	return []string{
		"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient",
		"/run/systemd/generator.early", "/etc/systemd/system", "/etc/systemd/system.attached",
		"/run/systemd/system", "/run/systemd/system.attached", "/run/systemd/generator",
		"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/run/systemd/generator.late",
	}
}

func requirements(t *testing.T) (manager string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("starting a systemd manager needs root")
	}
	for _, path := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if _, err := os.Stat(path); err == nil {
			manager = path
			break
		}
	}
	if manager == "" {
		t.Skip("systemd is not installed")
	}
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--cgroup", "--pid", "--fork", "--propagation",
		"private", "sh", "-c",
		"mount -t tmpfs none /run && mkdir /run/cgroup && mount -t cgroup2 none /run/cgroup").CombinedOutput()
	if err != nil {
		t.Skipf("no right to make namespaces or no cgroup2: %v %s", err, out)
	}
	return manager
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // systemd reads it
		t.Fatal(err)
	}
	mode := os.FileMode(0o644)
	if filepath.Ext(path) == ".env" {
		mode = 0o600
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
}

// read returns nothing if there is no such file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path) //nolint:gosec // a path of this test
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return content
}
