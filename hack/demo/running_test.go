package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// waiter is the variable that has this program wait for a signal, write to its output, and then make the file that the
// variable names, as the demo ends its processes.
const waiter = "DEMO_TEST_STOPPED"

func TestMain(m *testing.M) {
	file, is := os.LookupEnv(waiter)
	if !is {
		os.Exit(m.Run())
	}
	running, err := claim(filepath.Dir(file))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ctx, cancel := untilSignal()
	fmt.Println("running")
	<-ctx.Done()
	step("stopping everything")
	err = os.WriteFile(file, nil, 0o600)
	cancel()
	if err != nil {
		os.Exit(1)
	}
	_ = running.Close()
}

// wait starts the waiter, and returns when it waits.
func wait(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), waiter+"="+filepath.Join(dir, "stopped"))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "running\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_ = out.Close() // like tee, which Ctrl-C ends, too
	return cmd
}

// TestDemo_EndsItsProcesses ends it by signals, and from another terminal, while nobody reads its output.
func TestDemo_EndsItsProcesses(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(dir string, p *os.Process) error{
		"Ctrl-C":         func(_ string, p *os.Process) error { return p.Signal(os.Interrupt) },
		"the terminal":   func(_ string, p *os.Process) error { return p.Signal(syscall.SIGHUP) },
		"no reader":      func(_ string, p *os.Process) error { return p.Signal(syscall.SIGPIPE) },
		"make demo-stop": func(dir string, _ *os.Process) error { return stop(dir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "the terminal" && signal.Ignored(syscall.SIGHUP) {
				t.Skip("these tests run with nohup, so that the demo outlives the terminal, too")
			}
			dir := t.TempDir()
			cmd := wait(t, dir)
			if _, err := claim(dir); err == nil {
				t.Error("another demo takes the same folder")
			}
			if err := end(dir, cmd.Process); err != nil {
				t.Error(err)
			}
			if name != "make demo-stop" {
				_ = cmd.Wait()
			}
			if _, err := os.Stat(filepath.Join(dir, "stopped")); err != nil {
				t.Errorf("it ended before its processes: %v", err)
			}
			_ = cmd.Wait() // unless it was waited for
			if err := stop(dir); err != nil {
				t.Errorf("nothing is running: %v", err)
			}
		})
	}
	if err := stop(t.TempDir()); err != nil {
		t.Errorf("nothing has run: %v", err)
	}
}
