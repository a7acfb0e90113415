//go:build node

package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// HostConfig is what a host runs.
type HostConfig struct {
	// Name is that of its log, Address its own in the machines' network.
	Name, Address string
	// Argv is the program with its arguments. It prints a line when it is ready, and ends when its standard input is
	// closed.
	Argv []string
	// Environment is added to that of the test.
	Environment []string
}

// Host is a program beside the machines, in network and PID namespaces of its own: machines reach it and it reaches
// them, and nothing else does.
type Host struct {
	owner  *testing.T // whose end is that of the host
	lab    *Lab
	config HostConfig
	leader string // PID of its program, as the test sees it
}

// NewHost prepares a host and does not start it.
func (l *Lab) NewHost(t *testing.T, config HostConfig) *Host {
	t.Helper()
	return &Host{owner: t, lab: l, config: config}
}

// Start starts the host and returns the line that its program prints when it is ready. It ends with the test that made
// it.
func (h *Host) Start(t *testing.T) string {
	t.Helper()
	name := h.config.Name + ".log"
	log, err := os.Create(filepath.Join(h.lab.folder, name)) //nolint:gosec // a file of the lab
	must(t, err)
	argv := append([]string{"--net", "--pid", "--fork", "--kill-child", "--"}, h.config.Argv...)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", argv...) //nolint:gosec // a program of this test
	cmd.Env, cmd.Stderr = append(os.Environ(), h.config.Environment...), log
	lifeline, err := cmd.StdinPipe()
	must(t, err)
	output, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	h.owner.Cleanup(func() {
		_ = lifeline.Close()
		_, _ = io.Copy(io.Discard, output)
		_ = cmd.Wait() // ended by its standard input
		_ = log.Close()
	})
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		t.Fatalf("%s ended before it was ready:\n%s", h.config.Name, h.lab.read(name))
	}
	h.leader = childOf(t, cmd.Process.Pid)
	h.connect(t)
	return lines.Text()
}

// connect gives the host an interface, one end of a pair whose other end is on the bridge.
func (h *Host) connect(t *testing.T) {
	t.Helper()
	address := h.config.Address
	peer := "m" + address // as machines have it
	for _, step := range []struct {
		leader string
		argv   []string
	}{
		{h.lab.leader, []string{"ip", "link", "add", peer, "type", "veth", "peer", "name", "eth0", "netns", h.leader}},
		{h.lab.leader, []string{"ip", "link", "set", peer, "master", bridge, "up"}},
		{h.leader, []string{"ip", "address", "add", fmt.Sprintf("%s/%d", address, prefixLength), "dev", "eth0"}},
		{h.leader, []string{"ip", "link", "set", "eth0", "up"}},
	} {
		if out, err := inNetwork(t.Context(), step.leader, step.argv...).CombinedOutput(); err != nil {
			t.Fatalf("connecting %s: %q: %v: %s", address, step.argv, err, bytes.TrimSpace(out))
		}
	}
}

// Command is a command on the host.
func (h *Host) Command(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	return inNetwork(t.Context(), h.leader, argv...)
}

// inNetwork is a command in the network of a process.
func inNetwork(ctx context.Context, pid string, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=/proc/" + pid + "/ns/net", "--"}, argv...)...) //nolint:gosec // commands of this test
}
