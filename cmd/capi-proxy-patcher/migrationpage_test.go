package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// TestMigrationPage_ExamplesAreWhatThePageSays renders the examples of docs/migration.md: what was there before is a
// conflict as soon as the label is set, and what comes after has the proxy.
func TestMigrationPage_ExamplesAreWhatThePageSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	var secret string
	counts := map[string]int{}
	for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
		kind, example, found := strings.Cut(strings.TrimPrefix(block[2], "# "), "\n")
		if counts[kind]++; block[1] != "yaml" || !found {
			t.Errorf("block %q", block[0])
			continue
		}
		switch kind {
		case "Secret":
			secret = "---\n" + example
		case "before":
			checkSecret(t, example)
			if strings.Contains(example, "kubeadmConfigSpec") {
				checkBefore(t, example, secret)
			}
		case "after":
			checkAfter(t, example, secret)
		}
	}
	if counts["before"] != 5 || counts["after"] != 2 || counts["Secret"] != 1 {
		t.Errorf("blocks %v", counts)
	}
}

// checkSecret makes a proxy Secret of what was there before.
func checkSecret(t *testing.T, example string) {
	t.Helper()
	status, out, problems := run(t, example, "secret", "--from", "-", "--namespace", "team-a")
	if strings.Contains(example, "contentFrom: ") { // the values are elsewhere, the page says so
		if status != kit.ExitInput || out != "" {
			t.Errorf("status %d, %s", status, out)
		}
		return
	}
	if status != kit.ExitDone || !strings.Contains(out, "httpProxy: http://proxy.example.com:3128\n") {
		t.Errorf("status %d: %s\n%s", status, problems, out)
	}
}

var writtenPath = regexp.MustCompile(`- path: (\S+)`)

func checkBefore(t *testing.T, example, secret string) {
	t.Helper()
	const metadata = "metadata: {name: prod, namespace: team-a"
	if status, out, problems := run(t, example+secret, "render", "-f", "-"); status != kit.ExitDone || out != example+secret {
		t.Errorf("without the label: status %d\n%s", status, problems)
	}
	labelled := strings.Replace(example, metadata, metadata+`, labels: {capi-proxy-patcher.io/enabled: "true"}`, 1)
	status, _, problems := run(t, labelled+secret, "render", "-f", "-")
	for _, path := range writtenPath.FindAllStringSubmatch(example, -1) {
		if status != kit.ExitInput || !strings.Contains(problems, path[1]) {
			t.Errorf("with the label: status %d and no conflict with %s: %s", status, path[1], problems)
		}
	}
}

func checkAfter(t *testing.T, example, secret string) {
	t.Helper()
	status, out, problems := run(t, example+secret, "render", "-f", "-", "--include-secrets")
	if status != kit.ExitDone || strings.Contains(problems, "warning: ") && !strings.Contains(example, "topology:") {
		t.Errorf("status %d: %s", status, problems)
	}
	if strings.Contains(example, "topology:") {
		if !strings.Contains(example, "capi-proxy-patcher.io/rollout: Immediate") {
			t.Errorf("a running topology would be frozen, and lose its proxy:\n%s", example)
		}
		return
	}
	for _, path := range []string{
		"/etc/capi-proxy-patcher/proxy.env", "/containerd.service.d/http-proxy.conf", "/kubelet.service.d/http-proxy.conf",
	} {
		if strings.Count(out, path) == 0 || strings.Count(example, path) > 0 {
			t.Errorf("%s in\n%s", path, out)
		}
	}
}
