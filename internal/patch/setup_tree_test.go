package patch_test

import (
	"bytes"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

// Paths of a node, below the root of a test.
const (
	ourFolder   = "etc/capi-proxy-patcher/"
	debianStore = "usr/local/share/ca-certificates/"
	certificate = "-----BEGIN CERTIFICATE-----\none\n-----END CERTIFICATE-----\n"
	asked       = "ip -o addr show scope global\nhostname -f\n"
	debianCalls = "update-ca-certificates --fresh\n"
	restarted   = "systemctl daemon-reload\nsystemctl is-active containerd\nsystemctl restart --job-mode=ignore-requirements containerd\n"
)

// node stands for a node: a root for every path of the script, and a PATH with nothing on it but a few tools and the
// stubs of a test.
type node struct {
	t      *testing.T
	root   string
	shell  []string
	script string
	// under is the command that the shell is started with, for namespaces.
	under []string
	// deaf says that the console or the file of problems cannot be written.
	deaf bool
	// stdout is that of the last run, calls the stubs that it has called with their arguments.
	stdout, calls string
}

// eachNode runs a test in each shell that a node may have.
func eachNode(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	for _, shell := range shells.Installed(t) {
		t.Run(shell.Name, func(t *testing.T) {
			t.Parallel()
			test(t, newNode(t, shell))
		})
	}
}

// oneNode runs a row of a table whose rows differ in what the script reads, not in how it goes on, in one shell. The name
// of the row decides which, so that every shell has a part of the table.
func oneNode(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	installed := shells.Installed(t)
	test(t, newNode(t, installed[int(crc32.ChecksumIEEE([]byte(t.Name())))%len(installed)]))
}

func newNode(t *testing.T, shell shells.Shell) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir(), shell: shell.Argv, script: patch.Setup()}
	n.reset()
	return n
}

// reset makes the node one on which nothing fails: a Debian with a certificate and a containerd. It keeps the file of
// problems.
func (n *node) reset() {
	n.t.Helper()
	problems := n.read(contract.PathProblems)
	for _, name := range []string{"etc", "dev", "proc", "usr", "bin"} {
		if err := os.RemoveAll(n.path(name)); err != nil {
			n.t.Fatal(err)
		}
	}
	if problems != "" {
		n.write(contract.PathProblems, problems)
	}
	for _, tool := range []string{
		"cat", "env", "grep", "mktemp", "mv", "rm", "sed", "sleep", "sort", "tee", "timeout", "touch", "tr",
	} {
		n.tool(tool)
	}
	n.write(ourFolder+"proxy.env", "# Managed by capi-proxy-patcher\nHTTP_PROXY=\"http://u:s3cr%25t%40@p:3128\"\n"+
		"NO_PROXY=\"localhost,.svc\"\nno_proxy=\"localhost,.svc\"\n")
	n.write(ourFolder+"trusted-ca.pem", "# Managed by capi-proxy-patcher\n"+certificate)
	n.write("etc/systemd/system/containerd.service.d/http-proxy.conf", "")
	n.write("proc/sys/kernel/hostname", "Node-1\n")
	n.write("dev/console", "")
	n.write(debianStore+"theirs.crt", "theirs")
	n.stub("update-ca-certificates", "")
	n.stub("hostname", "echo node-1.Example.com")
	n.stub("ip", `echo '2: eth0    inet 10.0.0.5/24 brd 10.0.0.255 scope global eth0\       valid_lft forever'
echo '2: eth0    inet6 fd00::5/64 scope global dynamic \       valid_lft 1sec'
echo '3: tun0    inet 10.9.0.1 peer 10.9.0.2/32 scope global tun0'
echo '4: kube-ipvs0    inet 10.96.0.1/32 scope global kube-ipvs0'`)
	n.systemctl("active", "")
}

func (n *node) path(name string) string { return filepath.Join(n.root, name) }

func (n *node) write(name, content string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o750); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.path(name), []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// read returns the content of a file, "" if there is none.
func (n *node) read(name string) string {
	content, _ := os.ReadFile(n.path(name))
	return string(content)
}

func (n *node) remove(names ...string) {
	n.t.Helper()
	for _, name := range names {
		if err := os.RemoveAll(n.path(name)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// folder makes a folder that is not empty, in place of a file, too.
func (n *node) folder(name string) {
	n.t.Helper()
	n.remove(name)
	n.write(name+"/x", "")
}

// names returns the names in a folder.
func (n *node) names(folder string) string {
	entries, _ := os.ReadDir(n.path(folder))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// tool puts a program of this machine on PATH.
func (n *node) tool(name string) {
	n.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.MkdirAll(n.path("bin"), 0o750); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Symlink(path, n.path("bin/"+name)); err != nil {
		n.t.Fatal(err)
	}
}

// stub puts a command on PATH that writes down how it is called and then runs body.
func (n *node) stub(name, body string) {
	n.t.Helper()
	n.remove("bin/" + name) // a tool is a link to that of this machine
	n.write("bin/"+name, "#!/bin/sh\necho \""+name+" $*\" >>"+n.root+"/calls\n"+body+"\n")
	if err := os.Chmod(n.path("bin/"+name), 0o700); err != nil { //nolint:gosec // a command has to be executable
		n.t.Fatal(err)
	}
}

// systemctl puts one on PATH for which containerd has a state. It ends with an error for one verb.
func (n *node) systemctl(state, fails string) {
	n.t.Helper()
	n.stub("systemctl", "[ \"$1\" != is-active ] || echo "+state+"\n[ \"$1\" != '"+fails+"' ]")
}

// timesOut puts a timeout on PATH whose time is over at once for commands with a limit.
func (n *node) timesOut(limit string) {
	n.t.Helper()
	path, err := exec.LookPath("timeout")
	if err != nil {
		n.t.Fatal(err)
	}
	n.stub("timeout", "[ \"$1\" != "+limit+" ] || exit 124\nexec "+path+" \"$@\"")
}

// command returns the script as a command. Its paths are those of the test.
func (n *node) command(verb ...string) *exec.Cmd {
	n.t.Helper()
	var paths []string
	for _, p := range []string{"/etc/", "/proc/sys/", "/dev/console", "/usr/local/share/"} {
		paths = append(paths, p, n.root+p)
	}
	n.write("setup.sh", strings.NewReplacer(paths...).Replace(n.script))
	argv := slices.Concat(n.under, n.shell, []string{n.path("setup.sh")}, verb)
	command := exec.CommandContext(n.t.Context(), argv[0], argv[1:]...)
	command.Env = []string{"PATH=" + n.path("bin")}
	command.WaitDelay = time.Second
	return command
}

// run runs the script and returns the problems that it reports. It checks what holds for every run: without a verb the
// status is 0 and log, console and the file of problems have the same lines; with one the status says whether there is
// a problem, and only the log has it.
func (n *node) run(verb ...string) (says []string) {
	n.t.Helper()
	n.remove("calls")
	before := strings.ReplaceAll(n.read(contract.PathProblems), n.root, "")
	_ = os.Truncate(n.path("dev/console"), 0)
	var stdout, stderr bytes.Buffer
	command := n.command(verb...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if command.ProcessState == nil {
		n.t.Fatal(err)
	}
	clean := func(text string) string { return strings.ReplaceAll(text, n.root, "") }
	for line := range strings.Lines(clean(stderr.String())) {
		if line, found := strings.CutPrefix(line, "capi-proxy-patcher: "); found {
			says = append(says, strings.TrimSuffix(line, "\n"))
		}
	}
	n.stdout, n.calls = stdout.String(), clean(n.read("calls"))
	status, lines, problems := 0, "", before
	for _, line := range says {
		lines += "capi-proxy-patcher: " + line + "\n"
	}
	switch {
	case len(verb) == 0:
		problems = lines
	case len(says) > 0:
		status, lines = 1, ""
	}
	if got := command.ProcessState.ExitCode(); got != status {
		n.t.Errorf("%q: status %d, want %d\n%s", verb, got, status, &stderr)
	}
	if !n.deaf && (clean(n.read("dev/console")) != lines || clean(n.read(contract.PathProblems)) != problems) {
		n.t.Errorf("%q: console %q, problems %q, log %q", verb, n.read("dev/console"), n.read(contract.PathProblems), &stderr)
	}
	if strings.Contains(stdout.String()+stderr.String(), "s3cr") {
		n.t.Errorf("%q: the log has a password: %s%s", verb, &stdout, &stderr)
	}
	return says
}
