package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// startTimeout is how long a manager may take to fill its caches.
const startTimeout = 10 * time.Minute

// process is a manager, the product's or the idle one.
type process struct {
	cmd *exec.Cmd
	// env is added to the environment of this process.
	env []string
	// health, metrics and pprof are its addresses.
	health, metrics, pprof string
	// ready is how long it took until its caches were filled.
	ready   time.Duration
	started time.Time
}

// addresses returns free addresses of 127.0.0.1.
func addresses(ctx context.Context, n int) ([]string, error) {
	var found []string
	for range n {
		address, err := ports.Address(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, address)
	}
	return found, nil
}

// launch starts a manager and waits until it is ready. It logs to a file.
func launch(ctx context.Context, p *process, log, program string, args ...string) error {
	file, err := os.Create(log) //nolint:gosec // a folder of our own
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	p.cmd = exec.CommandContext(ctx, program, args...) //nolint:gosec // the developer names the program
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = file, file, append(os.Environ(), p.env...)
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	for time.Since(p.started) < startTimeout && ctx.Err() == nil {
		if _, err := get(ctx, "http://"+p.health+"/readyz"); err == nil {
			p.ready = time.Since(p.started)
			return nil
		}
		if syscall.Kill(p.cmd.Process.Pid, 0) != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.stop()
	return fmt.Errorf("starting %s: it does not become ready; see %s", program, log)
}

func (p *process) stop() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Wait()
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// progress is how many reconciles have ended, and how many Clusters wait for one.
func (p *process) progress(ctx context.Context) (reconciles, waiting float64, err error) {
	sums, err := p.sums(ctx)
	return sums["controller_runtime_reconcile_total"],
		sums["workqueue_depth"] + sums["controller_runtime_active_workers"], err
}

// queued is how many Clusters were ever queued.
func (p *process) queued(ctx context.Context) (float64, error) {
	sums, err := p.sums(ctx)
	return sums["workqueue_adds_total"], err
}

// sums returns metrics by name, each summed up over its labels.
func (p *process) sums(ctx context.Context) (map[string]float64, error) {
	text, err := get(ctx, "http://"+p.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 {
			if value, err := strconv.ParseFloat(fields[1], 64); err == nil {
				name, _, _ := strings.Cut(fields[0], "{")
				sums[name] += value
			}
		}
	}
	return sums, lines.Err()
}

// heap returns the bytes of live objects after a collection, and how many objects were ever allocated.
func (p *process) heap(ctx context.Context) (live, mallocs float64, err error) {
	text, err := get(ctx, "http://"+p.pprof+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(line, "# HeapAlloc = ")
		into := &live
		if !found {
			value, found = strings.CutPrefix(line, "# Mallocs = ")
			into = &mallocs
		}
		if found {
			if *into, err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
				return 0, 0, fmt.Errorf("reading profile: %w", err)
			}
		}
	}
	return live, mallocs, nil
}

// profile writes a profile into a folder, if there is one.
func (p *process) profile(ctx context.Context, folder, kind, name string) error {
	if folder == "" {
		return nil
	}
	text, err := get(ctx, "http://"+p.pprof+"/debug/pprof/"+kind)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, name), text, 0o644)) //nolint:gosec // anybody may read it
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity") // a compressor would be measured, too
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return text, err
}
