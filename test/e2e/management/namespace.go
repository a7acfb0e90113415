//go:build e2e

package management

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// isolatedVariable is set for a program that RunIsolated has started.
const isolatedVariable = "CAPI_PROXY_PATCHER_E2E_ISOLATED"

// Networks of the namespace. Every address in them is one of this machine, inside of the namespace only.
const (
	// EndpointNetwork holds the control-plane endpoints of workload clusters, so that an endpoint is not an address of
	// loopback, which NO_PROXY always covers.
	EndpointNetwork = "10.99.0.0/16"
	endpointAddress = "10.99.0.1/16"
)

// Isolated reports whether this program was started by RunIsolated.
func Isolated() bool { return os.Getenv(isolatedVariable) != "" }

// RunIsolated starts this program again with the same arguments and more, in a network namespace that has only loopback
// and in a PID namespace, and returns its exit status. Whatever it starts ends with it, however it ends. Without root a
// user namespace is made too. An error says why a machine cannot do that.
func RunIsolated(ctx context.Context, more ...string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	ctx = context.WithoutCancel(ctx)
	probe := exec.CommandContext(ctx, "true")
	probe.SysProcAttr = isolation()
	if err := probe.Run(); err != nil {
		return 0, fmt.Errorf("making a network namespace, which needs Linux and root or user namespaces: %w", err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return 0, fmt.Errorf("configuring loopback of a network namespace: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, slices.Concat(more, os.Args[1:])...) //nolint:gosec // ourselves
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(withoutProxy(os.Environ()), isolatedVariable+"=1")
	cmd.SysProcAttr = isolation()
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return 0, fmt.Errorf("starting this program in a network namespace: %w", err)
	}
	return 0, nil
}

// isolation makes the namespaces, and ends the process with the one that started it.
func isolation() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attributes
}

// configureNetwork brings up loopback in the namespace of this program.
func configureNetwork(ctx context.Context) error {
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"address", "replace", endpointAddress, "dev", "lo"}} {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil { //nolint:gosec // constants
			return fmt.Errorf("configuring loopback: ip %s: %w: %s", strings.Join(args, " "), err,
				strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// withoutProxy returns an environment without variables of a proxy: everything here is reached directly.
func withoutProxy(environment []string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "no_proxy", "all_proxy":
			return true
		}
		return false
	})
}
