package faults

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	// noResync keeps a manager from finding by accident what it has missed: it needs an event, or has to retry.
	noResync = "--sync-period=1h"
	// shortResync is for managers that have nothing to do, and are to find that out often.
	shortResync = "--sync-period=1s"
	// twoResyncs is longer than two of those, with the jitter that they have.
	twoResyncs = 2500 * time.Millisecond
)

// process is a manager of one namespace.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	health string
	// diagnostics is the address of --diagnostics-address.
	diagnostics string
	log         *logbuffer.Buffer
	// exited is closed when the process is gone.
	exited chan struct{}
}

// launch starts a manager of a namespace and does not wait for it. The test's end is its end.
func launch(t *testing.T, ns string, flags ...string) *process {
	t.Helper()
	return command(t, append([]string{"manager", "--kubeconfig", shared.Kubeconfig, "--namespace", ns}, flags...)...)
}

// command starts the program and does not wait for it.
func command(t *testing.T, args ...string) *process {
	t.Helper()
	// It panics if an object of a cache is changed, which is read without a copy in places.
	return run(t, []string{"KUBE_CACHE_MUTATION_DETECTOR=true"}, args...)
}

// run starts the program with variables and does not wait for it.
func run(t *testing.T, environment []string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, health: vocabulary.FreeAddress(t), diagnostics: vocabulary.FreeAddress(t), log: &logbuffer.Buffer{},
		exited: make(chan struct{}),
	}
	defaults := []string{args[0], "--health-addr", p.health, "--diagnostics-address", p.diagnostics, "-v", "2"}
	args = append(defaults, args[1:]...)
	p.cmd = exec.CommandContext(t.Context(), shared.Binary, args...)
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting the manager: %v", err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		<-p.exited
		text := p.log.String()
		if strings.Contains(text, "Observed a panic") || strings.Contains(text, "panic: ") {
			t.Errorf("the manager panicked:\n%s", text)
		} else if t.Failed() {
			lines := strings.SplitAfter(text, "\n")
			t.Logf("the last lines of manager %d:\n%s", p.cmd.Process.Pid, strings.Join(lines[max(0, len(lines)-12):], ""))
		}
	})
	return p
}

// kubeconfigOf returns a kubeconfig of a ServiceAccount.
func kubeconfigOf(t *testing.T, ns, account string) (path string) {
	t.Helper()
	config, err := mgmt.ServiceAccountConfig(t.Context(), shared.Cluster.Config(), ns, account)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := mgmt.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	return path
}

// manager starts a manager of a namespace and waits until it is ready.
func manager(t *testing.T, ns string, flags ...string) *process {
	t.Helper()
	p := launch(t, ns, flags...)
	p.ready()
	return p
}

// ready waits until the manager's caches are filled and its webhooks served.
func (p *process) ready() {
	p.t.Helper()
	eventually(p.t, "readiness of the manager", func() string {
		if p.hasExited() {
			p.t.Fatalf("the manager has exited: %s", p.cmd.ProcessState)
		}
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+"/readyz", http.NoBody)
		if err != nil {
			return err.Error()
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return err.Error()
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return answer.Status
		}
		return ""
	})
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// kill ends the process in the middle of whatever it does.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		p.t.Fatalf("killing the manager: %v", err)
	}
	<-p.exited
}

// stop ends the process as the kubelet does, and fails if it does not end well.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("stopping the manager: %v", err)
	}
	<-p.exited
	if !p.cmd.ProcessState.Success() {
		// After an outage a watch of client-go may wait for its next try, longer than the manager waits for it.
		if log := p.log.String(); strings.Contains(log, "failed waiting for all runnables to end within grace period") {
			p.t.Log("the manager gave up waiting for its watches")
			return
		}
		p.t.Errorf("the manager was stopped and ended with %s:\n%s", p.cmd.ProcessState, p.log)
	}
}

// staysQuiet fails if a manager, started anew, writes anything in a namespace in which nothing happens, at its start or
// in two resyncs.
func (f *fleet) staysQuiet(flags ...string) {
	f.t.Helper()
	from := setMark(f.t, f.ns)
	p := manager(f.t, f.ns, append(slices.Clip(flags), shortResync)...)
	if slices.Contains(flags, "--leader-elect") {
		f.eventuallyLed()
	}
	time.Sleep(twoResyncs)
	p.stop()
	if writes := from.since(mgmt.Request.IsWrite); len(writes) > 0 {
		f.t.Errorf("%d writes although there is nothing to do, the first of them %+v", len(writes), writes[0])
	}
}
