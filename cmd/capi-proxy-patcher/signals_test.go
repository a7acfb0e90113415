package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// asProgram makes the test binary the program.
const asProgram = "CAPI_PROXY_PATCHER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	capabilities() // tests read the names that they add, in whatever order they run
	m.Run()
}

// TestSignals_EndCommandsAtOnce sends a signal to commands that wait for the rest of their input. The first part is
// more than a pipe holds, so that it is written only once the command reads.
func TestSignals_EndCommandsAtOnce(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"render", "lint", "explain"} {
		for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(command+" "+sent.String(), func(t *testing.T) {
				t.Parallel()
				cmd := exec.CommandContext(t.Context(), os.Args[0], command, "-f", "-")
				cmd.Env = append(os.Environ(), asProgram+"=1")
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if _, err := in.Write(bytes.Repeat([]byte("# comment\n"), 1<<20)); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Process.Signal(sent); err != nil {
					t.Fatal(err)
				}
				err = cmd.Wait()
				exit, _ := errors.AsType[*exec.ExitError](err)
				if exit == nil || !exit.Sys().(syscall.WaitStatus).Signaled() || exit.Sys().(syscall.WaitStatus).Signal() != sent {
					t.Fatalf("%v: %s", err, stderr.String())
				}
			})
		}
	}
}

// TestSignals_MakeCheckPrintWhatItHas interrupts a check that waits, as it says on standard error.
func TestSignals_MakeCheckPrintWhatItHas(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "check", "--wait", "10m", "--kubeconfig", a.kubeconfig(t))
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stderr).ReadString('\n')
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.ExitCode() != 1 || !strings.HasPrefix(line, "waiting for ") || !strings.Contains(stdout.String(), "\nInstallation\n") ||
		!strings.Contains(stdout.String(), " failed (") {
		t.Errorf("%v: %s%s", err, line, stdout.String())
	}
}
