// Command demo shows the main job on a real API server: it starts a management cluster, installs the product as users
// do, applies a Cluster with the label, and prints what changed and what a node gets. It needs KUBEBUILDER_ASSETS;
// make demo sets it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// readyLine is what the serving process prints when the manager works.
const readyLine = "ready"

func main() {
	os.Exit(run())
}

func run() int {
	var (
		serving = flag.Bool("serve", false,
			"run the management cluster and the manager until told to stop; used by the demo itself")
		keep   = flag.Bool("keep", false, "leave everything running")
		stop   = flag.Bool("stop", false, "stop what -keep left running")
		dir    = flag.String("dir", ".demo", "folder for the kubeconfig and logs")
		binary = flag.String("manager", "bin/capi-proxy-patcher", "the program to show")
	)
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // the manager logs for itself
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	var err error
	switch {
	case *serving:
		err = serve(ctx, *dir, *binary, os.Stdout)
	case *stop:
		err = stopKept(*dir)
	default:
		err = demo(ctx, *dir, *binary, *keep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

// demo runs the whole show.
func demo(ctx context.Context, dir, binary string, keep bool) (err error) {
	start := time.Now()
	if _, err := os.Stat(pidFile(dir)); err == nil {
		return fmt.Errorf("an earlier demo is still running; stop it with make demo-stop (%s)", pidFile(dir))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	server, err := startServer(ctx, dir, binary, keep)
	if err != nil {
		return err
	}
	defer func() {
		if !keep || err != nil {
			step("stopping everything")
			err = errors.Join(err, server.stop())
			_ = os.Remove(pidFile(dir))
			_ = os.Remove(kubeconfigFile(dir))
		}
	}()
	if err := server.waitReady(); err != nil {
		return fmt.Errorf("%w; see %s", err, filepath.Join(dir, "manager.log"))
	}
	if err := show(ctx, dir, os.Stdout); err != nil {
		return err
	}
	fmt.Printf("\nDone in %.0f s.\n", time.Since(start).Seconds())
	if keep {
		fmt.Printf("Everything is still running. Look around with\n\n  export KUBECONFIG=%s\n  kubectl -n demo get "+
			"cluster,kubeadmcontrolplane,kubeadmconfigtemplate,secret\n\nand stop it with make demo-stop.\n",
			kubeconfigFile(dir))
	}
	return nil
}

func step(text string) { fmt.Println("==> " + text) }

func pidFile(dir string) string { return filepath.Join(dir, "pid") }

func kubeconfigFile(dir string) string {
	path, err := filepath.Abs(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return filepath.Join(dir, "kubeconfig")
	}
	return path
}

// server is the process that holds the management cluster and the manager.
type server struct {
	cmd   *exec.Cmd
	lines io.ReadCloser
}

// startServer starts this program again with -serve. A kept server has a session of its own, so that it outlives the
// terminal.
func startServer(ctx context.Context, dir, binary string, keep bool) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "-serve", "-dir", dir, "-manager", binary) //nolint:gosec // ourselves
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: keep, Setpgid: !keep}
	cmd.Stderr = os.Stderr
	if keep { // its own file, because ours may be a pipe that closes
		log, err := os.Create(filepath.Join(dir, "server.log")) //nolint:gosec // the user names the folder
		if err != nil {
			return nil, err
		}
		cmd.Stderr = log
	}
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &server{cmd: cmd, lines: lines}, os.WriteFile(pidFile(dir), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}

// waitReady prints the server's progress until it is ready.
func (s *server) waitReady() error {
	scanner := bufio.NewScanner(s.lines)
	for scanner.Scan() {
		if scanner.Text() == readyLine {
			return nil
		}
		step(scanner.Text())
	}
	return errors.New("the management cluster did not come up")
}

func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_, _ = io.Copy(io.Discard, s.lines)
	return s.cmd.Wait()
}

// stopKept stops the server of an earlier run.
func stopKept(dir string) error {
	text, err := os.ReadFile(pidFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		step("nothing is running")
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("reading %s: %w", pidFile(dir), err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	for range 300 { // the API server takes seconds to end
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.Remove(kubeconfigFile(dir))
			step("stopped")
			return os.Remove(pidFile(dir))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("process %d does not end", pid)
}
