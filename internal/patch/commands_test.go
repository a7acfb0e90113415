package patch_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/nodescript"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// shells are the two that run the commands: cloud-init's sh without set -e, Ignition's bash with it.
func shells() map[string][]string {
	return map[string][]string{"dash": {"dash"}, "bash": {"bash"}, "bash -e": {"bash", "-e"}}
}

// runCommands runs what a bootstrap provider makes of a recipe around the commands of a user, in one shell, and
// returns the *_proxy variables that kubeadm and then the user's commands after it see. Only the commands about
// variables are run; those about systemd are not.
func runCommands(t *testing.T, shell []string, s proxyconfig.Settings, user ...string) (kubeadm, after []string) {
	t.Helper()
	if _, err := exec.LookPath(shell[0]); err != nil {
		t.Skipf("%s is not installed", shell[0])
	}
	root := t.TempDir()
	data, err := patch.SecretData(s, noProxy)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{contract.PathProxyEnv: data[contract.KeyProxyEnv], contract.PathSetup: []byte(nodescript.Setup())} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := recipe(t, patch.Options{Targets: []contract.Target{contract.TargetKubeadm}})
	var script []string
	script = append(script, r.First...)
	script = append(script, user...)
	script = append(script, r.Last...)
	script = append(script, "env -0 >"+root+"/kubeadm")
	script = append(script, r.Post...)
	script = append(script, "env -0 >"+root+"/after")
	text := strings.ReplaceAll(strings.Join(script, "\n")+"\n", "/etc/capi-proxy-patcher/", root+"/etc/capi-proxy-patcher/")
	command := exec.CommandContext(t.Context(), shell[0], append(shell[1:], "-c", text)...)
	command.Dir, command.Env = root, []string{"PATH=" + os.Getenv("PATH")}
	if output, err := command.CombinedOutput(); err != nil || len(output) > 0 {
		t.Fatalf("running\n%s: %v\n%s", text, err, output)
	}
	read := func(name string) []string {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		var variables []string
		for variable := range bytes.SplitSeq(content, []byte{0}) {
			name, _, _ := strings.Cut(string(variable), "=")
			if strings.HasSuffix(strings.ToLower(name), "_proxy") || name == "names" {
				variables = append(variables, string(variable))
			}
		}
		return variables
	}
	return read("kubeadm"), read("after")
}

func sorted(list []string) cmp.Option {
	return cmp.Transformer("set", func(l []string) map[string]bool {
		set := map[string]bool{}
		for _, item := range append(l, list...) {
			set[item] = true
		}
		return set
	})
}

func TestKubeadmGetsNoCredentialInAnySpelling(t *testing.T) {
	t.Parallel()
	for name, shell := range shells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings(t, map[string]string{"httpProxy": "http://proxy.example.com:3128", "username": `DOM\user`, "password": "p%4@:/\"'$`\\ {{x}}{%#"})
			kubeadm, after := runCommands(t, shell, s,
				"export ALL_PROXY='socks5://u:p@h' Ftp_proxy=http://u@h _PROXY=u:p@h plain_PROXY=http://h NOT_A_PROXY_NAME=u@h no_proxy=kept.example.com",
				"export multiline_proxy='http://u:p@h\nX_PROXY=u:p@h'")
			want := []string{"NO_PROXY=" + noProxy, "no_proxy=kept.example.com", "plain_PROXY=http://h"}
			if diff := cmp.Diff(want, kubeadm, sorted(nil)); diff != "" {
				t.Errorf("variables of kubeadm (-want +got):\n%s", diff)
			}
			want = []string{"plain_PROXY=http://h"}
			for _, v := range s.Vars(noProxy) {
				want = append(want, v.Name+"="+v.Value)
			}
			if diff := cmp.Diff(want, after, sorted(nil)); diff != "" {
				t.Errorf("variables of the user's commands after kubeadm (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKubeadmKeepsAProxyWithoutCredentials(t *testing.T) {
	t.Parallel()
	for name, shell := range shells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kubeadm, _ := runCommands(t, shell, plain(t), "true")
			var want []string
			for _, v := range plain(t).Vars(noProxy) {
				want = append(want, v.Name+"="+v.Value)
			}
			if diff := cmp.Diff(want, kubeadm, sorted(nil)); diff != "" {
				t.Errorf("variables of kubeadm (-want +got):\n%s", diff)
			}
		})
	}
}
