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

// TestStartPage_CommandsWork runs the commands of docs/start.md, from the Secret on, as they are there.
func TestStartPage_CommandsWork(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	ns := admitted(t, namespace(t), webhooksLive)
	text, err := os.ReadFile("../../docs/start.md")
	if err != nil {
		t.Fatal(err)
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
	before := c.snapshot()
	_, page, _ := strings.Cut(string(text), "\n## 3. ")
	page = regexp.MustCompile(`\bprod\b`).ReplaceAllString(strings.ReplaceAll(page, "team-a", ns), "one")
	said := map[string]string{} // by the program that a command begins with, and its number
	var commands []string
	for line := range strings.Lines(page) {
		if command, isCommand := strings.CutPrefix(line, "    "); isCommand {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	for _, command := range commands {
		cmd := exec.CommandContext(t.Context(), bash, "-euo", "pipefail", "-c", command)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.kubeconfig,
			"PATH="+strings.Join([]string{tools, os.Getenv(mgmt.AssetsVariable), os.Getenv("PATH")}, ":"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		said[command] = string(out)
	}
	for part, want := range map[string]string{
		"proxy-files": ".corp.example.com\tuser", "events": "ProxyConfigured", "status": "Configured",
		"explain": "registry.example.com",
	} {
		found := false
		for command, out := range said {
			found = found || strings.Contains(command, part) && strings.Contains(out, want)
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
