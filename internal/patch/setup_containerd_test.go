package patch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

const (
	isActive   = "systemctl is-active containerd\n"
	restart    = "systemctl restart containerd\n"
	crictlInfo = "crictl --runtime-endpoint unix:///run/containerd/containerd.sock info\n"
	ctrVersion = "ctr --address /run/containerd/containerd.sock version\n"
	restarted  = "capi-proxy-patcher: containerd restarted and answers\n"
	noAnswer   = "capi-proxy-patcher: containerd does not answer 5 s after its restart: see journalctl -u containerd\n"
	noRestart  = "capi-proxy-patcher: containerd did not restart: see journalctl -u containerd\n"
)

func TestRestartContainerd(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// state is what is-active prints.
		state string
		// stubs are further commands; "restart" is the body of systemctl restart.
		stubs map[string]string
		want  treeOutcome
	}{
		"running, asked through crictl first": {
			"active",
			map[string]string{"crictl": "echo '{}'; echo warning >&2", "ctr": "exit 1"},
			treeOutcome{Stdout: restarted, Calls: isActive + restart + crictlInfo},
		},
		"running, with its CRI plugin switched off": {
			"active",
			map[string]string{"crictl": "exit 1", "ctr": "exit 0"},
			treeOutcome{Stdout: restarted, Calls: isActive + restart + crictlInfo + ctrVersion},
		},
		"running, asked through ctr if there is no crictl": {
			"active",
			map[string]string{"ctr": "exit 0"},
			treeOutcome{Stdout: restarted, Calls: isActive + restart + ctrVersion},
		},
		"running, asked through systemd if there is neither": {
			"active", nil,
			treeOutcome{Stdout: restarted, Calls: isActive + restart + "systemctl is-active --quiet containerd\n"},
		},
		"starting": {
			"activating",
			map[string]string{"crictl": "exit 0"},
			treeOutcome{Stdout: restarted, Calls: isActive + restart + crictlInfo},
		},
		"answering the second time": {
			"active",
			map[string]string{"crictl": `[ -e "$CALLS.again" ] || { : >"$CALLS.again"; exit 1; }`},
			treeOutcome{Stdout: restarted, Calls: isActive + restart + crictlInfo + crictlInfo},
		},
		"stopped": {
			"inactive", nil,
			treeOutcome{Stdout: "capi-proxy-patcher: containerd is not running (inactive), nothing to restart\n", Calls: isActive},
		},
		"not restarting": {
			"active",
			map[string]string{"restart": "echo 'Job for containerd.service failed.' >&2; exit 1"},
			treeOutcome{
				Exit: 1, Stderr: "capi-proxy-patcher: Job for containerd.service failed.\n" + noRestart,
				Calls: isActive + restart,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachTree(t, func(n *tree) {
				t := n.t
				n.stubs(test.state, test.stubs)
				if diff := cmp.Diff(test.want, n.run("restart-containerd")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Nothing that the script asks may keep it waiting, on an image with timeout
// and on one without. The node of a test checks that it ends.
func TestRestartContainerd_NeverHangs(t *testing.T) {
	t.Parallel()
	const hang = "exec sleep 300"
	tests := map[string]struct {
		stubs map[string]string
		want  treeOutcome
	}{
		"containerd never answers":  {map[string]string{"crictl": "exit 1"}, treeOutcome{Exit: 1, Stderr: noAnswer}},
		"crictl hangs":              {map[string]string{"crictl": hang}, treeOutcome{Exit: 1, Stderr: noAnswer}},
		"systemctl restart hangs":   {map[string]string{"restart": hang}, treeOutcome{Exit: 1, Stderr: noRestart}},
		"systemctl is-active hangs": {map[string]string{"is-active": hang}, treeOutcome{Stdout: "capi-proxy-patcher: containerd is not running (unknown), nothing to restart\n"}},
	}
	// All at the same time, because each takes seconds.
	type run struct {
		name string
		wait func() treeOutcome
		want treeOutcome
	}
	var runs []run
	for name, test := range tests {
		for _, tool := range []string{"with timeout", "without timeout"} {
			for _, shell := range shells.Installed(t) {
				n := newTree(t, shell.Argv...)
				n.stubs("active", test.stubs)
				n.env = append(n.env, "CAPI_PROXY_PATCHER_WAIT=5") // commands that do not hang take seconds on a busy machine
				if tool == "without timeout" {
					n.remove("stubs/timeout")
				}
				runs = append(runs, run{name + ", " + shell.Name + " " + tool, n.start("restart-containerd"), test.want})
			}
		}
	}
	for _, run := range runs {
		got := run.wait()
		got.Stderr = withoutKilled(got.Stderr)
		got.Calls = ""
		if diff := cmp.Diff(run.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", run.name, diff)
		}
	}
}

func TestRestartContainerd_WorksWithoutTimeout(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		n.stubs("active", map[string]string{"crictl": "exit 0"})
		n.remove("stubs/timeout")
		want := treeOutcome{Stdout: restarted, Calls: isActive + restart + crictlInfo}
		if diff := cmp.Diff(want, n.run("restart-containerd")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		n.stubs("active", map[string]string{"restart": "exit 3"})
		if got := n.run("restart-containerd"); got.Exit != 1 || got.Stderr != noRestart {
			t.Errorf("a failing restart: %+v", got)
		}
	})
}

func TestRestartContainerd_RestartsNothingWithoutSystemd(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		want := treeOutcome{Stdout: "capi-proxy-patcher: containerd is not running (unknown), nothing to restart\n"}
		if diff := cmp.Diff(want, n.run("restart-containerd")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func (n *tree) stubs(state string, bodies map[string]string) {
	n.t.Helper()
	for name, body := range bodies {
		if name != "restart" && name != "is-active" {
			n.stub(name, body)
		}
	}
	n.stub("systemctl", `case $* in
"is-active containerd") `+bodies["is-active"]+`
echo '`+state+`'; [ '`+state+`' = active ] ;;
"restart containerd") `+bodies["restart"]+`
;;
esac`)
}

// withoutKilled drops the line by which a shell reports a process that was
// killed: some do, in words of their own.
func withoutKilled(stderr string) string {
	var kept strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "Killed") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
