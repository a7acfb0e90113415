//go:build e2e

package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Limits of a process.
const (
	// readyTimeout is how long a process may take until it is ready. A machine that compiles at the same time, or a
	// management cluster under load, needs more than the second of an idle one.
	readyTimeout = 3 * time.Minute
	// stopTimeout is how long it may take to end after SIGTERM, before it is killed.
	stopTimeout = 20 * time.Second
)

// Process is a program that can be stopped and started again. Its output is appended to one log over all restarts.
type Process struct {
	// Name is the name of its log, without .log.
	Name string

	path   string
	args   []string
	log    string
	health string // URL that answers 200 when it is ready

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// newProcess returns a process that is not started. health is host:port of /readyz.
func (c *Cluster) newProcess(name, path, health string, args ...string) *Process {
	p := &Process{Name: name, path: path, args: args, log: filepath.Join(c.Logs, name+".log"), health: "http://" +
		health + "/readyz"}
	c.processes = append(c.processes, p)
	return p
}

// ErrRunning is returned by Start if the process runs already. It may have ended on its own: only Stop and Kill find
// out.
var ErrRunning = errors.New("it is running")

// Start starts the process and returns when it is ready.
func (p *Process) Start(ctx context.Context) error {
	if err := p.launch(ctx); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	if err := p.waitReady(ctx); err != nil {
		return fmt.Errorf("starting %s: %w; see %s", p.Name, err, p.log)
	}
	return nil
}

// Replace has later starts run another program, with the same arguments.
func (p *Process) Replace(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = path
}

func (p *Process) launch(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return ErrRunning
	}
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// The context bounds the start only.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), p.path, p.args...) //nolint:gosec // programs that this repository builds
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = withoutProxy(os.Environ())
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.done)
	return nil
}

func (p *Process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.done:
			return errors.New("it has ended")
		case <-ctx.Done():
			return fmt.Errorf("it is not ready after %s", readyTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop ends the process as a Pod is ended: with SIGTERM, and later with SIGKILL. It does nothing if it does not run.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the process as a power failure does.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

func (p *Process) end(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	p.cmd = nil
}

// stopAll stops processes, the last started first.
func stopAll(processes []*Process) {
	for _, p := range slices.Backward(processes) {
		p.Stop()
	}
}
