//go:build node

// Package machine boots a root file system with systemd-nspawn: a real
// systemd as first process, in PID, mount, network, IPC, UTS and cgroup
// namespaces of its own. It needs root and Linux, and no systemd on the host.
//
// A machine has the loopback interface, and a second one if it is given a
// network. What it changes is kept
// in an overlay, so that it can be booted again, and many machines share one
// root file system. Whatever happens to the test, even if it is killed, the
// machine ends with it and leaves no process, mount, cgroup or namespace.
package machine

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

//go:embed run.sh
var runScript []byte

const (
	// pollInterval is the time between two checks of a machine.
	pollInterval = 500 * time.Millisecond
	// bootTimeout is how long a machine may take to have a first process.
	bootTimeout = 2 * time.Minute
	// stopTimeout is how long it may take to power off before it is killed.
	stopTimeout = time.Minute
	// goneTimeout is how long what remains of a machine that was killed may
	// take to go.
	goneTimeout = time.Minute
	// logTail is how many bytes of its log a failure shows.
	logTail = 8 << 10
)

// File is one file of a Config: a symbolic link if Link is set, an empty
// folder if Mode says so.
type File struct {
	Mode    fs.FileMode
	Content []byte
	Link    string
}

// Config says how a machine differs from the root file system it boots.
type Config struct {
	// Root is the folder of the root file system. It is not written to.
	Root string
	// Files are added before the first boot, by absolute path. Folders that
	// are missing get mode 0755.
	Files map[string]File
	// Remove are absolute paths that are removed before the first boot, after
	// Files have been added.
	Remove []string
	// IgnitionProgram applies IgnitionConfig before the first boot, after
	// that, if both are set.
	IgnitionProgram string
	IgnitionConfig  []byte
	// Binds are files of the host that the machine sees, for reading only: by
	// absolute path in the machine, their paths on the host. None has a colon.
	Binds map[string]string
	// Network gives the machine an interface eth0, if set.
	Network *Network
	// Containers lets the machine run containers with limits. It sees the
	// cgroups of version 1 then, which the host must have.
	Containers bool
}

// Network is what a machine is connected to: a bridge in a network namespace.
type Network struct {
	// Namespace is the path of the network namespace, of the form
	// /proc/PID/ns/net, and Bridge the name of a bridge in it.
	Namespace, Bridge string
	// Address is that of the machine, with the length of the network's prefix.
	Address netip.Prefix
	// Gateway is the machine's default route.
	Gateway netip.Addr
}

// Machine is a machine that is running or can be started. Its methods may be
// called by subtests of the test that made it.
type Machine struct {
	owner    *testing.T // whose end is that of the machine
	folder   string
	name     string
	leader   string // PID of its first process, as the host sees it
	lifeline io.Closer
	ended    chan struct{} // closed when all of it is gone; nil before the first start
}

// New prepares a machine and does not start it. It is killed when the test
// ends, if it is running then.
func New(t *testing.T, config Config) *Machine {
	t.Helper()
	m := &Machine{owner: t, folder: t.TempDir()}
	m.name = cgroupPrefix() + filepath.Base(filepath.Dir(m.folder)) + "." + filepath.Base(m.folder)
	for _, name := range []string{"upper", "work", "seed", "containerd"} {
		must(t, os.Mkdir(filepath.Join(m.folder, name), 0o755)) //nolint:gosec // folders of the machine, which its own users enter
	}
	must(t, os.Symlink(config.Root, filepath.Join(m.folder, "lower")))
	m.write("run.sh", File{Mode: 0o600, Content: runScript})
	m.write("name", File{Mode: 0o600, Content: []byte(m.name + "\n")})
	m.write("log", File{Mode: 0o600})
	m.write("remove", File{Mode: 0o600, Content: []byte(strings.Join(append(config.Remove, ""), "\n"))})
	for path, file := range config.Files {
		m.write(filepath.Join("seed", path), file)
	}
	if config.IgnitionProgram != "" {
		m.write("ignition", File{Link: config.IgnitionProgram})
		m.write("config.ign", File{Mode: 0o600, Content: config.IgnitionConfig})
	}
	var binds strings.Builder
	for _, path := range slices.Sorted(maps.Keys(config.Binds)) {
		fmt.Fprintf(&binds, "%s:%s\n", config.Binds[path], path)
	}
	m.write("binds", File{Mode: 0o600, Content: []byte(binds.String())})
	if n := config.Network; n != nil {
		line := fmt.Sprintf("%s %s %s %s\n", n.Namespace, n.Bridge, n.Address, n.Gateway)
		m.write("network", File{Mode: 0o600, Content: []byte(line)})
	}
	if config.Containers {
		m.write("containers", File{Mode: 0o600})
	}
	t.Cleanup(func() { m.Kill(t) })
	return m
}

// cgroupPrefix begins the names of the cgroups of this process's machines.
func cgroupPrefix() string { return "capi-proxy-patcher-node." + strconv.Itoa(os.Getpid()) + "." }

// Require skips the test, with the reason, where no machine can be booted:
// without root, or without the right to make namespaces and to mount.
func Require(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("booting a machine needs root")
	}
	m := New(t, Config{Root: t.TempDir()})
	attempt := m.command(t, "attempt")
	_, err := attempt.StdinPipe() // open until the command ends
	must(t, err)
	if out, err := attempt.CombinedOutput(); err != nil {
		t.Skipf("no right to make namespaces, cgroups or overlays: %v: %s", err, strings.TrimSpace(string(out)+m.Log()))
	}
}

// RequireContainers skips the test, with the reason, where a machine cannot run
// containers: where a controller of cgroups has no hierarchy of version 1, in
// which everybody may make a group below the own one.
func RequireContainers(t *testing.T) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	var found []string
	for line := range strings.Lines(string(own)) {
		if fields := strings.SplitN(line, ":", 3); len(fields) == 3 {
			found = append(found, strings.Split(fields[1], ",")...)
		}
	}
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"} {
		if !slices.Contains(found, controller) {
			t.Skipf("no hierarchy of cgroups of version 1 for %s: containers of a machine could not be given limits", controller)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *Machine) write(name string, file File) {
	m.owner.Helper()
	path, folder := filepath.Join(m.folder, name), filepath.Dir(filepath.Join(m.folder, name))
	if file.Mode.IsDir() {
		folder = path
	}
	must(m.owner, os.MkdirAll(folder, 0o755)) //nolint:gosec // folders of the machine, which its own users enter
	switch {
	case file.Link != "":
		must(m.owner, os.Symlink(file.Link, path))
		return
	case !file.Mode.IsDir():
		must(m.owner, os.WriteFile(path, file.Content, file.Mode.Perm()))
	}
	must(m.owner, os.Chmod(path, file.Mode.Perm())) // whatever the umask is
}

// command is run.sh. It is not killed with a context, because it could not
// remove its cgroups then; closing its standard input ends it.
func (m *Machine) command(t *testing.T, verb string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", "--mount", "--propagation", "private", //nolint:gosec // paths of this test
		"sh", filepath.Join(m.folder, "run.sh"), m.folder, verb)
}

// Start boots the machine and returns as soon as it has a first process.
func (m *Machine) Start(t *testing.T) {
	t.Helper()
	cmd := m.command(t, "boot")
	lifeline, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	ended := make(chan struct{})
	m.lifeline, m.ended, m.leader = lifeline, ended, ""
	go func() {
		_ = cmd.Wait() // the log says what a status could
		close(ended)
	}()
	m.poll(t, bootTimeout, "a first process", func() bool {
		m.leader = m.firstProcess()
		return m.leader != ""
	})
}

// firstProcess returns the PID of the process that is number 1 two PID
// namespaces below, one of run.sh and one of systemd-nspawn.
func (m *Machine) firstProcess() string {
	statuses, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is well-formed
	for _, path := range statuses {
		status, err := os.ReadFile(path) //nolint:gosec // of the kernel
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(status), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		pids := strings.Fields(line)
		if len(pids) != 3 || pids[2] != "1" {
			continue
		}
		cgroups, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup"))
		if err == nil && strings.Contains(string(cgroups), "/"+m.name) {
			return pids[0]
		}
	}
	return ""
}

// WaitFor waits until a command succeeds in the machine. It fails the test
// after the given time, or when the machine ends before.
func (m *Machine) WaitFor(t *testing.T, limit time.Duration, argv ...string) {
	t.Helper()
	m.poll(t, limit, strings.Join(argv, " "), func() bool {
		_, err := m.Run(argv...)
		return err == nil
	})
}

// poll waits for a condition.
func (m *Machine) poll(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-m.ended:
			t.Fatalf("the machine ended while waiting for %s:\n%s", what, m.Log())
		case <-ctx.Done():
			t.Fatalf("waiting %s for %s: %v\n%s", limit, what, ctx.Err(), m.Log())
		}
	}
}

// Command is a command to run in a machine. Its environment is a PATH, a
// locale and nothing else.
type Command struct {
	Argv []string
	// Input is its standard input.
	Input string
	// Nobody runs it as a user without any right or group of its own, not as
	// root.
	Nobody bool
}

// Do runs a command in the machine and returns what it prints to standard
// output, also when it fails. An error holds what it prints to standard error.
func (m *Machine) Do(c Command) (string, error) {
	argv := []string{
		"--target=" + m.leader, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup",
		"--root", "--wd", "--",
	}
	if c.Nobody {
		argv = append(argv, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
			"--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(m.owner.Context(), "nsenter", append(argv, c.Argv...)...) //nolint:gosec // runs in the machine
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.Input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("running %s: %w: %s", c.Argv[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Run is Do for a command of root's without input.
func (m *Machine) Run(argv ...string) (string, error) { return m.Do(Command{Argv: argv}) }

// MustRun is Run for a command that has to succeed.
func (m *Machine) MustRun(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := m.Run(argv...)
	must(t, err)
	return out
}

// ReadFile returns the content of a file in the machine.
func (m *Machine) ReadFile(t *testing.T, path string) string {
	t.Helper()
	return m.MustRun(t, "cat", "--", path)
}

// Environ returns the environment of the main process of a unit, as the
// process itself got it, which is not always what systemctl shows.
func (m *Machine) Environ(t *testing.T, unit string) map[string]string {
	t.Helper()
	pid := strings.TrimSpace(m.MustRun(t, "systemctl", "show", "--property=MainPID", "--value", unit))
	if pid == "0" {
		t.Fatalf("unit %s has no process", unit)
	}
	return ParseEnviron(m.ReadFile(t, "/proc/"+pid+"/environ"))
}

// ParseEnviron reads variables that each end in NUL, as env -0 writes them.
func ParseEnviron(text string) map[string]string {
	environ := map[string]string{}
	for entry := range strings.SplitSeq(text, "\x00") {
		if name, value, found := strings.Cut(entry, "="); found {
			environ[name] = value
		}
	}
	return environ
}

// Stop powers the machine off and waits until it is gone. It can then be started again.
func (m *Machine) Stop(t *testing.T) {
	t.Helper()
	_, _ = m.Run("systemctl", "poweroff", "--no-block") // which may itself end with the machine
	select {
	case <-m.ended:
	case <-time.After(stopTimeout):
		t.Fatalf("the machine does not power off within %s:\n%s", stopTimeout, m.Log())
	}
}

// Kill ends the machine at once, if it runs, as if its power failed. It waits
// until it is gone.
func (m *Machine) Kill(t *testing.T) {
	t.Helper()
	if m.ended == nil {
		return
	}
	_ = m.lifeline.Close() // closed already if the machine has ended
	select {
	case <-m.ended:
	case <-time.After(goneTimeout):
		t.Errorf("the machine is not gone %s after it was killed:\n%s", goneTimeout, m.Log())
	}
}

// Log returns the end of what the console and the program that boots the
// machine have printed.
func (m *Machine) Log() string {
	log, err := os.ReadFile(filepath.Join(m.folder, "log"))
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-logTail):])
}
