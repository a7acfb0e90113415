//go:build node

package node_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/machine"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// check is something to see on a node, as one or more subtests.
type check func(t *testing.T, n *node)

const (
	// searched is where a password could end up.
	searched = "/etc /run /var /tmp /root /home /opt /usr/local /dev/shm"
	// startedMessage is the message ID of "Started UNIT", in all languages (sd-messages(3)).
	startedMessage = "39f53479d3a045ac8e11786248231fbf"
)

// withoutOwn takes what the node adds to NO_PROXY away, and fails if that is not there.
func (n *node) withoutOwn(t *testing.T, variables map[string]string) map[string]string {
	t.Helper()
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		value, found := variables[name]
		own, good := strings.CutSuffix(value, ","+n.values[name])
		switch {
		case !found:
		case !good || !slices.Contains(strings.Split(own, ","), ownAddress):
			t.Errorf("%s is %q, want %s and more before %q", name, value, ownAddress, n.values[name])
		default:
			variables[name] = n.values[name]
		}
	}
	return variables
}

// expected is the part of the variables that sight s leaves.
func (n *node) expected(s sight) map[string]string {
	if s == everything {
		return n.values
	}
	return map[string]string{}
}

// output is what the commands of the bootstrap have printed.
func (n *node) output(t *testing.T) string {
	t.Helper()
	if n.ignition {
		return n.MustRun(t, "journalctl", "--boot", "--no-pager", "--output=cat", "--unit=kubeadm.service")
	}
	return n.ReadFile(t, "/var/log/cloud-init-output.log")
}

// initErrors are the errors that cloud-init reports.
func (n *node) initErrors(t *testing.T) []string {
	t.Helper()
	var result struct{ V1 struct{ Errors []string } }
	if err := json.Unmarshal([]byte(n.ReadFile(t, "/run/cloud-init/result.json")), &result); err != nil {
		t.Fatal(err)
	}
	return result.V1.Errors
}

// holdsCredentials reports whether there is something to hide.
func (n *node) holdsCredentials() bool { return strings.Contains(n.httpProxy, needle) }

// succeeded are the checks of a bootstrap that went through.
func succeeded(t *testing.T, n *node) {
	t.Helper()
	t.Run("the bootstrap goes through without an error", func(t *testing.T) {
		args := "init --config /run/kubeadm/kubeadm.yaml"
		if n.ignition {
			args = "init --config /etc/kubeadm.yml"
			if result := n.MustRun(t, "systemctl", "show", "--property=Result", "--value", "kubeadm"); result != "success\n" {
				t.Errorf("kubeadm.service: %s%s", result, n.output(t))
			}
		} else if errs := n.initErrors(t); len(errs) > 0 {
			t.Errorf("cloud-init: %q\n%s", errs, n.output(t))
		}
		if got := strings.TrimSpace(n.ReadFile(t, "/var/lib/node-test/kubeadm.args")); got != args {
			t.Errorf("kubeadm ran with %q, want it to run once with %q", got, args)
		}
	})
	t.Run("containerd and kubelet have exactly the variables of the Secret",
		func(t *testing.T) { servicesHaveVariables(t, n) })
	t.Run("containerd was restarted once and answers", func(t *testing.T) {
		if !n.runs("containerd") {
			return
		}
		want := n.starts
		if want == 0 {
			want = 2
		}
		if got := starts(t, n); got != want {
			t.Errorf("containerd was started %d times, want %d", got, want)
		}
		n.MustRun(t, "ctr", "version")
		n.saw(t, "containerd started %dx, answers", want)
	})
	t.Run("kubeadm and the user's commands see what they should", func(t *testing.T) {
		for _, process := range []struct {
			name string
			sight
		}{{"pre", n.users}, {"kubeadm", nothing}, {"post", n.users}} {
			recorded := n.ReadFile(t, "/var/lib/node-test/"+process.name+".env")
			if diff := cmp.Diff(n.expected(process.sight),
				n.withoutOwn(t, vocabulary.ProxyVariables(machine.ParseEnviron(recorded)))); diff != "" {
				t.Errorf("variables of %s (-want +got):\n%s", process.name, diff)
			}
			if process.sight != everything && strings.Contains(recorded, needle) {
				t.Errorf("environment of %s has a credential: %q", process.name, recorded)
			}
		}
		n.saw(t, "kubeadm: no variable, user's commands: %d", len(n.expected(n.users)))
	})
	t.Run("what is the user's own is done and written as it was", func(t *testing.T) {
		if got := n.ReadFile(t, "/var/lib/node-test/own"); got != ownResult {
			t.Errorf("user's command: %q, want %q", got, ownResult)
		}
		if got := n.ReadFile(t, "/etc/kubernetes/audit.yaml"); got != auditPolicy {
			t.Errorf("user's file: %q, want %q", got, auditPolicy)
		}
	})
}

// runs reports whether a service can have started again.
func (n *node) runs(service string) bool {
	return !strings.HasPrefix(n.problem, service+" did not restart")
}

// servicesHaveVariables fails unless the processes have what the scenario says.
func servicesHaveVariables(t *testing.T, n *node) {
	t.Helper()
	if n.runs("containerd") {
		if diff := cmp.Diff(n.expected(n.services), vocabulary.ProxyVariables(n.Environ(t, "containerd"))); diff != "" {
			t.Errorf("variables of containerd (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(n.expected(n.services), n.withoutOwn(t, vocabulary.ProxyVariables(n.Environ(t, "kubelet")))); diff != "" {
		t.Errorf("variables of kubelet (-want +got):\n%s", diff)
	}
	n.saw(t, "containerd, kubelet: %d variables", len(n.expected(n.services)))
}

// starts counts the starts of containerd in this boot.
func starts(t *testing.T, n *node) int {
	t.Helper()
	n.MustRun(t, "journalctl", "--sync")
	messages := n.MustRun(t, "journalctl", "--boot", "--no-pager", "--output=cat",
		"_PID=1", "UNIT=containerd.service", "MESSAGE_ID="+startedMessage)
	return strings.Count(messages, "Started ")
}

// said checks what is said of a problem, and that nothing is said without one.
func said(t *testing.T, n *node) {
	t.Helper()
	t.Run("log and file have the line about what could not be done, and no other", func(t *testing.T) {
		want := ""
		if n.problem != "" {
			want = "capi-proxy-patcher: " + n.problem + "\n"
		}
		got := regexp.MustCompile("(?m)^capi-proxy-patcher: .*\n").FindAllString(n.output(t), -1)
		file := n.MustRun(t, "sh", "-c", "cat "+contract.PathProblems+" || :")
		if strings.Join(got, "") != want || file != want {
			t.Errorf("the log says %q, the file %q, want %q", got, file, want)
		}
		n.saw(t, "says: %.45s", n.problem)
	})
}

// common are the checks of every bootstrap.
func common(t *testing.T, n *node) {
	t.Helper()
	t.Run("the managed files are there with mode and owner, and no others", func(t *testing.T) {
		found := n.MustRun(t, "find", "/etc", "/usr/lib/systemd", "/run/systemd", "(", "-path", "/etc/capi-proxy-patcher/*",
			"-o", "-name", "http-proxy.conf", ")", "-printf", `%m %u:%g %p\n`)
		lines := strings.Split(strings.TrimSuffix(found, "\n"), "\n")
		slices.Sort(lines)
		if diff := cmp.Diff(strings.Join(n.managed, "\n"), strings.Join(lines, "\n")); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	})
	t.Run("a user without rights finds no credential", func(t *testing.T) {
		if !n.holdsCredentials() {
			return
		}
		const look = "systemctl show containerd kubelet kubeadm cloud-final; systemctl cat containerd kubelet; systemctl show-environment; " +
			"journalctl --no-pager; dmesg; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; true"
		seen, err := n.Do(machine.Command{Nobody: true, Argv: []string{"sh", "-c", look}})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(seen, needle) {
			t.Errorf("nobody sees a credential: %s", vocabulary.LineWith(seen, needle))
		}
		if !n.removed && strings.Count(seen, "EnvironmentFile=-/etc/capi-proxy-patcher/proxy.env\n") != 2 {
			t.Errorf("nobody does not see the drop-ins, so this shows nothing:\n%.2000s", seen)
		}
		if files := filesWith(t, n, needle, true); len(files) > 0 {
			t.Errorf("nobody reads a credential in %q", files)
		}
		if files := filesWith(t, n, "ID=", true); len(files) == 0 {
			t.Error("the search finds nothing at all, so this shows nothing")
		}
		n.saw(t, "nobody finds no credential")
	})
	t.Run("no log has a credential, not even for root", func(t *testing.T) {
		logs := n.MustRun(t, "sh", "-c", "cat /var/log/cloud-init*.log; journalctl --no-pager --output=json --all")
		if strings.Contains(logs, needle) {
			t.Errorf("a log has a credential: %s", vocabulary.LineWith(logs, needle))
		}
		if !strings.Contains(logs, "containerd.service") {
			t.Error("the logs are empty")
		}
	})
}

// filesWith returns the files below the folders of searched that hold text, for root or for nobody.
func filesWith(t *testing.T, n *node, text string, nobody bool) []string {
	t.Helper()
	// The pattern does not become an argument, which would be seen in /proc. A status of 2 is that of unreadable files.
	out, err := n.Do(machine.Command{
		Nobody: nobody, Input: text,
		Argv: []string{"sh", "-c", "grep -rlF --devices=skip --file=- " + searched + " 2>/dev/null; [ $? -le 2 ]"},
	})
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(out)
	slices.Sort(files)
	return files
}
