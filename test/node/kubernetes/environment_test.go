//go:build node

package kubernetes_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/machine"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	// searched is where a password could end up.
	searched = "/etc /run /var /tmp /root /home /opt /usr/local /dev/shm"
	// look prints what every user can see of the system.
	look = "systemctl show containerd kubelet cloud-final; systemctl cat containerd kubelet; systemctl show-environment; " +
		"journalctl --no-pager; dmesg; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; true"
)

// environments checks the processes of a node, and searches it for the password.
func (s *suite) environments(t *testing.T, n node, want map[string]string, password string) {
	t.Helper()
	t.Run("containerd and kubelet of "+n.name+" have exactly the values of the Secret, and kubelet its own addresses", func(t *testing.T) {
		for unit, want := range map[string]map[string]string{"containerd": want, "kubelet": n.withOwn(want)} {
			if diff := cmp.Diff(want, vocabulary.ProxyVariables(n.Environ(t, unit))); diff != "" {
				t.Errorf("variables of %s (-want +got):\n%s", unit, diff)
			}
		}
	})
	sawNoProxy(t, n, password)
	t.Run("no process of "+n.name+" but containerd, its shims and kubelet has the password, and no container",
		func(t *testing.T) {
			names := n.MustRun(t, "sh", "-c", `for p in $(grep -lF `+password+` /proc/[0-9]*/environ 2>/dev/null); do
			cat "${p%environ}comm"; done 2>/dev/null | sort -u`)
			if names != "containerd\ncontainerd-shim\nkubelet\n" {
				t.Errorf("processes: %q", names)
			}
		})
	t.Run("a user without rights finds no password on "+n.name, func(t *testing.T) {
		seen, err := n.Do(machine.Command{Nobody: true, Argv: []string{"sh", "-c", look}})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(seen, password) {
			t.Errorf("nobody sees the password: %s", vocabulary.LineWith(seen, password))
		}
		if strings.Count(seen, "EnvironmentFile=-/etc/capi-proxy-patcher/proxy.env\n") != 2 {
			t.Errorf("nobody does not see the drop-ins, so this shows nothing:\n%.2000s", seen)
		}
		if files := filesWith(t, n, password, true); len(files) > 0 {
			t.Errorf("nobody reads the password in %q", files)
		}
		if files := filesWith(t, n, "ID=", true); len(files) == 0 {
			t.Error("the search finds nothing at all, so this shows nothing")
		}
		if files := filesWith(t, n, password, false); len(files) == 0 {
			t.Error("not even root finds the password, so this shows nothing")
		}
		s.report.Saw(t, stepEnv, "%s: containerd, kubelet 6 variables, kubeadm and nobody none", n.name)
	})
}

// withOwn adds what a node adds to NO_PROXY.
func (n node) withOwn(variables map[string]string) map[string]string {
	variables = maps.Clone(variables)
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		variables[name] = n.address + "," + n.host + "," + variables[name]
	}
	return variables
}

// filesWith returns the files below the folders of searched that hold text, for root or for nobody.
func filesWith(t *testing.T, n node, text string, nobody bool) []string {
	t.Helper()
	// The pattern does not become an argument, which would be seen in /proc. A status of 2 is that of unreadable files.
	// What containerd stores are the programs of images.
	out, err := n.Do(machine.Command{
		Nobody: nobody, Input: text,
		Argv: []string{
			"sh", "-c",
			"grep -rlF --devices=skip --exclude-dir=containerd --exclude-dir=io.containerd.runtime.v2.task --file=- " + searched + " 2>/dev/null; [ $? -le 2 ]",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out)
}
