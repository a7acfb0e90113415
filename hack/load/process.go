package main

import (
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
)

// startTimeout is how long a manager may take to fill its caches.
const startTimeout = 10 * time.Minute

// process is a program that is measured, or one that does nothing.
type process struct {
	cmd  *exec.Cmd
	http *http.Client
	// metrics and pprof are addresses.
	metrics, pprof string
	// ready is how long it took until it was ready.
	ready time.Duration
}

// launch starts a program, which logs to a file, and waits until a URL of it no longer answers with an error of the
// server.
func (p *process) launch(ctx context.Context, log, readyURL string) error {
	file, err := os.Create(log) //nolint:gosec // a folder of our own
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = file, file
	started := time.Now()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.cmd.Path, err)
	}
	for time.Since(started) < startTimeout && ctx.Err() == nil {
		status, _, err := p.send(ctx, http.MethodGet, readyURL, nil)
		if err == nil && status < http.StatusInternalServerError {
			p.ready = time.Since(started)
			return nil
		}
		if syscall.Kill(p.cmd.Process.Pid, 0) != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.stop()
	text, _ := os.ReadFile(log) //nolint:gosec // a folder of our own
	return fmt.Errorf("%s does not become ready: %s", p.cmd.Path, text)
}

// stop ends the process. It may be called again.
func (p *process) stop() {
	if p.cmd.Process != nil && p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Wait()
	}
}

func (p *process) send(ctx context.Context, method, url string, body []byte) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

// call sends a request, GET without a body and POST with one, and returns the body of an answer of status 200.
func (p *process) call(ctx context.Context, url string, body []byte) ([]byte, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	status, text, err := p.send(ctx, method, url, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("calling %s: status %d: %s", url, status, text)
	}
	return text, err
}

// progress returns the number of finished reconciles, and of Clusters that wait for one.
func (p *process) progress(ctx context.Context) (reconciles, waiting float64, err error) {
	text, err := p.call(ctx, "http://"+p.metrics+"/metrics", nil)
	sums := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			if value, err := strconv.ParseFloat(fields[1], 64); err == nil {
				name, _, _ := strings.Cut(fields[0], "{")
				sums[name] += value
			}
		}
	}
	return sums["controller_runtime_reconcile_total"],
		sums["workqueue_depth"] + sums["controller_runtime_active_workers"], err
}

// heap returns the KiB of live objects after a collection, and how many objects were ever allocated.
func (p *process) heap(ctx context.Context) (live, mallocs float64, err error) {
	text, err := p.call(ctx, "http://"+p.pprof+"/debug/pprof/heap?gc=1&debug=1", nil)
	return field(text, "# HeapAlloc = ") / 1024, field(text, "# Mallocs = "), err
}

// resident returns how many MiB of memory a process has, and the most that it had.
func (p *process) resident() (now, peak float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)) // a process that has ended has none
	return field(text, "VmRSS:") / 1024, field(text, "VmHWM:") / 1024
}

// field returns the number after a prefix of a line, 0 without such a line.
func field(text []byte, prefix string) float64 {
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, prefix); found {
			value, _, _ = strings.Cut(strings.TrimSpace(value), " ")
			number, _ := strconv.ParseFloat(value, 64)
			return number
		}
	}
	return 0
}

// cpu returns the CPU milliseconds of all threads of a process, from schedstat, which counts nanoseconds (proc(5)). The
// time of threads that have ended is lost.
func (p *process) cpu() (float64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		return 0, errors.New("reading /proc: no schedstat; measure on Linux")
	}
	var sum float64
	for _, file := range files {
		text, _ := os.ReadFile(file) //nolint:gosec // a thread that has ended has none
		sum += field(text, "")
	}
	return sum / 1e6, nil
}
