package patch_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func TestSetup_FitsIntoABootstrapSpec(t *testing.T) {
	t.Parallel()
	script := patch.Setup()
	if len(script) > 13<<10 {
		t.Errorf("%d bytes; clouds limit the whole of user-data to 16 KiB", len(script))
	}
	if !strings.HasPrefix(script, "#!/bin/sh\n") {
		t.Errorf("starts with %q", script[:20])
	}
	if !strings.HasSuffix(script, "\n") || strings.HasSuffix(script, "\n\n") {
		t.Error("does not end with exactly one newline, to which cloud-init changes it")
	}
	for _, template := range []string{"{{", "{%", "{#"} {
		if strings.Contains(script, template) {
			t.Errorf("contains %s, which cloud-init takes for a template", template)
		}
	}
	for _, variable := range []string{"${", "$$"} {
		if strings.Contains(script, variable) {
			t.Errorf("contains %s, which clusterctl and Flux take for a variable", variable)
		}
	}
	if i := strings.IndexFunc(script,
		func(r rune) bool { return r != '\n' && r != '\t' && (r < ' ' || r > '~') }); i >= 0 {
		t.Errorf("character %q at byte %d is not printable ASCII", script[i], i)
	}
	if !strings.Contains(script, "$root"+contract.PathTrustedCA+"\n") {
		t.Errorf("does not read %s", contract.PathTrustedCA)
	}
}

func TestSetup_PassesShellcheck(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed")
	}
	var script strings.Builder
	for _, file := range []string{"setup.sh", "endpoints.sh"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script.Write(content)
		script.WriteString("endpoints='' last=0\n")
	}
	command := exec.CommandContext(t.Context(), "shellcheck", "--shell=sh", "-")
	command.Stdin = strings.NewReader(script.String())
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSetup_ExplainsItselfToAnUnknownVerb(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		want := treeOutcome{
			Exit:   2,
			Stderr: "capi-proxy-patcher: usage: setup.sh own-addresses | refresh-addresses | export | install-ca | daemon-reload | restart-containerd | unset | unset-userinfo\n",
		}
		for _, args := range [][]string{nil, {""}, {"install"}, {"install-ca-x"}, {"*"}} {
			if diff := cmp.Diff(want, n.run(args...)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", args, diff)
			}
		}
	})
}

// The commands of a bootstrap spec run in one shell: in /bin/sh without set
// -e for cloud-init, in bash with set -e for Ignition. A failing step must end
// both, a good one neither.
func TestSetup_EndsTheBootstrapOnlyWhenItFails(t *testing.T) {
	t.Parallel()
	callers := map[string][]string{"cloud-init": {"sh", "-c"}, "ignition": {"bash", "-e", "-c"}}
	for name, caller := range callers {
		for _, works := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := newTree(t, "sh")
				n.stub("systemctl", map[bool]string{true: "exit 0", false: "exit 1"}[works])
				n.tool("sh")
				cmd := exec.CommandContext(t.Context(), caller[0], slices.Concat(caller[1:],
					[]string{"sh " + n.root + contract.PathSetup + " daemon-reload || exit 1\necho next"})...)
				cmd.Env = n.env
				out, err := cmd.Output()
				if want := map[bool]string{true: "next\n", false: ""}[works]; string(out) != want || (err == nil) != works {
					t.Errorf("works %t: printed %q, %v", works, out, err)
				}
			})
		}
	}
}

func TestDaemonReload(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stub string
		want treeOutcome
	}{
		"systemd reloads": {"echo ignored", treeOutcome{Calls: "systemctl daemon-reload\n"}},
		"systemd does not reload, and says why": {"echo 'Failed to reload daemon: Access denied' >&2\necho\nexit 1", treeOutcome{
			Exit:  1,
			Calls: "systemctl daemon-reload\n",
			Stderr: "capi-proxy-patcher: Failed to reload daemon: Access denied\n" +
				"capi-proxy-patcher: systemctl daemon-reload does not work: containerd and kubelet would start without the proxy\n",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachTree(t, func(n *tree) {
				t := n.t
				n.stub("systemctl", test.stub)
				if diff := cmp.Diff(test.want, n.run("daemon-reload")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
