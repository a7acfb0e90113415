package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
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
	put(filepath.Join(from, "proxy.env"), envfile.Header+"\nHTTP_PROXY=\"http://u:p4ss@127.0.0.1:1\"\n")
	for _, test := range []struct {
		name   string
		args   []string
		status int
		stdout string
		stderr string
	}{
		{"no command", []string{"node", "delete"}, 2, "", "capi-proxy-patcher: unknown command \"delete\" for \"capi-proxy-patcher node\"\n"},
		{"no version", []string{"node", "apply"}, 2, "", "capi-proxy-patcher: capi-proxy-patcher node apply: no version; use --from FOLDER\n"},
		{"a node of somebody else", []string{"node", "apply", "--root", root, "--from", from}, 1, "", "capi-proxy-patcher: there is no /etc/capi-proxy-patcher/proxy.env of capi-proxy-patcher on this node: its Machine was made without it; only a new Machine gets it\n"},
		{"a dry run", []string{"node", "apply", "--root", root, "--from", from, "--dry-run"}, 0, "write /etc/capi-proxy-patcher/proxy.env\n", ""},
		{"an apply", []string{"node", "apply", "--root", root, "--from", from}, 0, "", ""},
		{"another", []string{"node", "apply", "--root", root, "--from", from}, 0, "", ""},
		{"no endpoints", []string{"node", "check", "--root", root, "--from", from}, 0, "0 readiness endpoints answer\n", ""},
		{"an address of the network", []string{"node", "watch", "--root", root, "--from", from, "--listen", "0.0.0.0:1"}, 1, "", "capi-proxy-patcher: \"0.0.0.0:1\" is not an address of the loopback interface with a port, such as 127.0.0.1:19279\n"},
	} {
		if test.name == "a dry run" {
			put(filepath.Join(root, proxy), envfile.Header+"\nHTTP_PROXY=\"http://u:0ld@127.0.0.1:1\"\n")
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
}
