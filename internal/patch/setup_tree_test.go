package patch_test

import (
	"bytes"
	"errors"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

// tree stands for the root of a node, and a PATH with nothing
// on it but a few tools and the stubs of a test.
type tree struct {
	t     *testing.T
	root  string
	shell []string
	env   []string
	// killed says that the script may be killed.
	killed bool
}

// treeOutcome is what a run of the script did.
type treeOutcome struct {
	Exit   int
	Stdout string
	Stderr string
	// Calls are the stubs that ran with their arguments, in order.
	Calls string
}

// eachTree runs a test once for every shell that the script must run in.
func eachTree(t *testing.T, test func(n *tree)) {
	t.Helper()
	for _, shell := range shells.Installed(t) {
		t.Run(shell.Name, func(t *testing.T) {
			t.Parallel()
			test(newTree(t, shell.Argv...))
		})
	}
}

// oneTree runs one row of a table whose rows differ in what the script reads, not in how it goes on. The row has one shell,
// which its name decides, so that every shell has a part of the table.
func oneTree(t *testing.T, test func(n *tree)) {
	t.Helper()
	installed := shells.Installed(t)
	test(newTree(t, installed[int(crc32.ChecksumIEEE([]byte(t.Name())))%len(installed)].Argv...))
}

func newTree(t *testing.T, shell ...string) *tree {
	t.Helper()
	n := &tree{t: t, root: t.TempDir(), shell: shell}
	n.write("etc/capi-proxy-patcher/setup.sh", patch.Setup())
	for _, tool := range []string{"cat", "cp", "ln", "mkdir", "mv", "rm", "sleep", "timeout"} {
		n.tool(tool)
	}
	n.env = []string{
		"CAPI_PROXY_PATCHER_ROOT=" + n.root,
		"PATH=" + filepath.Join(n.root, "stubs"),
		"CALLS=" + filepath.Join(n.root, "calls"),
		"HTTPS_PROXY=http://user:secret@proxy.corp:3128",
	}
	return n
}

func (n *tree) tool(name string) {
	n.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(n.root, "stubs"), 0o750); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(n.root, "stubs", name)); err != nil {
		n.t.Fatal(err)
	}
}

// stub puts a command on PATH that records its arguments and then runs body.
func (n *tree) stub(name, body string) {
	n.t.Helper()
	// A tool is a link to that of this machine: never write through it.
	if err := os.RemoveAll(filepath.Join(n.root, "stubs", name)); err != nil {
		n.t.Fatal(err)
	}
	n.write("stubs/"+name, "#!/bin/sh\necho \""+name+" $*\" >>\"$CALLS\"\n"+body+"\n")
	if err := os.Chmod(filepath.Join(n.root, "stubs", name), 0o700); err != nil { //nolint:gosec // a command has to be executable
		n.t.Fatal(err)
	}
}

// updates puts a command on PATH that makes the bundle of a system from the certificates in a folder, as real ones do.
func (n *tree) updates(name, folder, bundle string) {
	n.t.Helper()
	n.stub(name, `B=`+filepath.Join(n.root, bundle)+`
mkdir -p "$B" && rm -r "$B" && cat "`+filepath.Join(n.root, folder)+`"/* >"$B" 2>/dev/null || :`)
}

func (n *tree) write(path, content string) {
	n.t.Helper()
	path = filepath.Join(n.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		n.t.Fatal(err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		n.t.Fatalf("%s is a link: what it leads to may not be of the test", path)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tree) read(path string) string {
	n.t.Helper()
	content, err := os.ReadFile(filepath.Join(n.root, path))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(content)
}

func (n *tree) remove(path string) {
	n.t.Helper()
	if err := os.Remove(filepath.Join(n.root, path)); err != nil {
		n.t.Fatal(err)
	}
}

// files returns the names in a folder of the node and what they hold.
func (n *tree) files(folder string) map[string]string {
	n.t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.root, folder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		files[entry.Name()] = n.read(filepath.Join(folder, entry.Name()))
	}
	return files
}

// run runs the script and waits for its end.
func (n *tree) run(args ...string) treeOutcome {
	n.t.Helper()
	return n.start(args...)()
}

// start starts the script. The function it returns waits for the end and
// checks what holds for every run: it ends, each line starts with the name of
// the product, and no proxy is printed.
func (n *tree) start(args ...string) (wait func() treeOutcome) {
	n.t.Helper()
	argv := slices.Concat(n.shell, []string{filepath.Join(n.root, contract.PathSetup)}, args)
	cmd := exec.CommandContext(n.t.Context(), argv[0], argv[1:]...)
	cmd.Env = n.env
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := os.RemoveAll(filepath.Join(n.root, "calls")); err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	tooLong := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	return func() treeOutcome {
		n.t.Helper()
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() < 0 && !n.killed {
			n.t.Fatalf("%v: %v", cmd, err)
		}
		tooLong.Stop()
		for line := range strings.Lines(stdout.String() + stderr.String()) {
			if !strings.HasPrefix(line, "capi-proxy-patcher: ") || !strings.HasSuffix(line, "\n") ||
				strings.Contains(line, "secret") {
				n.t.Errorf("%v printed %q", args, line)
			}
		}
		calls, err := os.ReadFile(filepath.Join(n.root, "calls"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			n.t.Fatal(err)
		}
		clean := func(b []byte) string { return strings.ReplaceAll(string(b), n.root, "ROOT") }
		return treeOutcome{cmd.ProcessState.ExitCode(), clean(stdout.Bytes()), clean(stderr.Bytes()), clean(calls)}
	}
}
