package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

func TestNode_SaysWhatItDoesByExitStatus(t *testing.T) {
	t.Parallel()
	root, from := t.TempDir(), t.TempDir()
	const proxy = "etc/capi-proxy-patcher/proxy.env"
	put := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	recipe, err := patch.NewRecipe(patch.Options{Targets: []contract.Target{contract.TargetCommands}}) // restarts nothing
	if err != nil {
		t.Fatal(err)
	}
	data, err := patch.NodeData(map[string][]byte{
		contract.KeyProxyEnv: []byte(systemd.EnvironmentFileHeader + "\nHTTP_PROXY=\"http://u:p4ss@127.0.0.1:1\"\n"),
	}, recipe)
	if err != nil {
		t.Fatal(err)
	}
	for key, content := range data {
		put(filepath.Join(from, key), string(content))
	}
	put(filepath.Join(root, "etc/mine"), "")
	put(filepath.Join(root, "run/mine"), "")
	put(filepath.Join(root, proxy), "HTTP_PROXY=http://mine\n")
	for _, test := range []struct {
		name   string
		args   []string
		status int
		stdout string
		stderr string
	}{
		{"no command", []string{"node", "delete"}, 2, "", "capi-proxy-patcher: unknown command \"delete\" of node\n"},
		{"no version", []string{"node", "apply"}, 2, "", "capi-proxy-patcher: no version; use --from FOLDER\n"},
		{"a file of somebody else", []string{"node", "apply", "--root", root, "--from", from}, 1, "", "capi-proxy-patcher: /etc/capi-proxy-patcher/proxy.env on this node has no line \"Managed by capi-proxy-patcher\": it is a file of somebody else and stays as it is; remove it, or replace the Machine\n"},
		{"a dry run", []string{"node", "apply", "--root", root, "--from", from, "--dry-run"}, 0, "write /etc/capi-proxy-patcher/proxy.env\nwrite /etc/capi-proxy-patcher/setup.sh\n", ""},
		{"an apply", []string{"node", "apply", "--root", root, "--from", from}, 0, "", ""},
		{"another", []string{"node", "apply", "--root", root, "--from", from}, 0, "", ""},
		{"no endpoints", []string{"node", "check", "--root", root, "--from", from}, 0, "0 readiness endpoints answer\n", ""},
		{"too many slots", []string{"node", "watch", "--root", root, "--from", from, "--slots", "101"}, 2, "", "capi-proxy-patcher: --slots 101 is not from 0 to 100\n"},
		{"slots of no Node", []string{"node", "apply", "--root", root, "--from", from, "--slots", "1"}, 2, "", "capi-proxy-patcher: --slots needs the name of the Node in $NODE_NAME\n"},
	} {
		if test.name == "a dry run" {
			if err := os.Remove(filepath.Join(root, proxy)); err != nil {
				t.Fatal(err)
			}
		}
		status, stdout, stderr := run(t, "", test.args...)
		stderr, _, _ = strings.Cut(stderr, "Run 'capi")
		if status != test.status || stdout != test.stdout || stderr != test.stderr {
			t.Errorf("%s: %d %q %q", test.name, status, stdout, stderr)
		}
	}
	got, err := os.ReadFile(filepath.Join(root, proxy))
	if err != nil || !strings.Contains(string(got), "p4ss") {
		t.Errorf("%s %v", got, err)
	}
	for _, args := range [][]string{{"--dry-run"}, {}, {"--dry-run"}} {
		_, err := os.Stat(filepath.Join(root, proxy))
		status, stdout, stderr := run(t, "", append([]string{"node", "remove", "--root", root}, args...)...)
		want := map[bool]string{true: "remove /etc/capi-proxy-patcher/proxy.env\nremove /etc/capi-proxy-patcher/setup.sh\n", false: "nothing to do\n"}[err == nil]
		if len(args) == 0 {
			want = ""
		}
		if status != 0 || stdout != want || stderr != "" {
			t.Errorf("remove %q: %d %q %q", args, status, stdout, stderr)
		}
	}
	if left, err := os.ReadDir(filepath.Join(root, "etc")); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}
