package envtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// TestStartPage_CommandsWork runs the commands of docs/start.md, from the Secret on, as they are there, for a Cluster
// without Machines and for one that runs.
func TestStartPage_CommandsWork(t *testing.T) {
	for name, test := range map[string]struct {
		runs bool
		says map[string]string // by a part of a command, what it prints
	}{
		"new": {false, map[string]string{
			"get cluster": "3 of 3 pools and control planes have the proxy (Secret ", "proxy-files -o": ".corp.example.com\tuser",
			"events": "ProxyConfigured", "status": "http-proxy   True", "explain": "registry.example.com",
		}},
		"running": {true, map[string]string{
			"get cluster": "* KubeadmControlPlane NS/one waits for its next rollout, because changing it now would replace its " +
				"Machines; to roll it now set annotation capi-proxy-patcher.io/rollout=Immediate on the Cluster\n* ",
			"proxy-files -o": ".corp.example.com\tuser", "events": "WaitingForRollout", "status": "WaitingForRollout",
			"explain": "registry.example.com",
		}},
	} {
		t.Run(name, func(t *testing.T) { runStartPage(t, test.runs, test.says) })
	}
}

func runStartPage(t *testing.T, runs bool, says map[string]string) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	ns := admitted(t, namespace(t), webhooksLive)
	text, err := os.ReadFile("../../docs/start.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if shown := strings.ReplaceAll(says["get cluster"], "NS/one", "team-a/prod"); !strings.Contains(string(readme),
		"    "+strings.ReplaceAll(shown, "\n", "\n    ")) {
		t.Errorf("README.md does not show %q", shown)
	}
	tools := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(tools, "capi-proxy-patcher"),
		"../../cmd/capi-proxy-patcher")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := newCluster(t, ns, "one", func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			cluster.Labels = nil
		}
	})
	if runs {
		c.runControlPlane()
	}
	before := c.snapshot()
	_, page, _ := strings.Cut(string(text), "\n## 3. ")
	page, _, _ = strings.Cut(page, "\n## A session\n") // test/e2e runs it
	page = regexp.MustCompile(`\bprod\b`).ReplaceAllString(strings.ReplaceAll(page, "team-a", ns), "one")
	page = strings.ReplaceAll(page, "--timeout=15m", "--timeout=1m")
	said := map[string]string{} // by the program that a command begins with, and its number
	var commands []string
	for line := range strings.Lines(page) {
		// test/e2e has the Deployments that check waits for.
		if command, isCommand := strings.CutPrefix(line, "    "); isCommand && !strings.Contains(command, "check --wait") {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	run := func(command string) {
		cmd := exec.CommandContext(t.Context(), bash, "-euo", "pipefail", "-c", command)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.kubeconfig,
			"PATH="+strings.Join([]string{tools, os.Getenv(mgmt.AssetsVariable), os.Getenv("PATH")}, ":"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		said[command] = string(out)
	}
	for _, command := range commands {
		run(command)
		if !strings.Contains(command, " get cluster ") {
			continue
		}
		eventually(t, "the message", func() string { // "a moment later"
			if run(command); strings.Contains(said[command], strings.ReplaceAll(says["get cluster"], "NS", ns)) {
				return ""
			}
			return said[command]
		})
	}
	for part, want := range says {
		found := false
		for command, out := range said {
			found = found || strings.Contains(command, part) && strings.Contains(out, strings.ReplaceAll(want, "NS", ns))
		}
		if !found {
			t.Errorf("no command with %q prints %q: %q", part, want, said)
		}
	}
	if len(commands) != 9 {
		t.Errorf("%d commands: %q", len(commands), commands)
	}
	c.eventuallyAsBefore(t, before)
}
