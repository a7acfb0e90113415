package patch_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

const (
	prepares         = "sh /etc/capi-proxy-patcher/setup.sh || : # capi-proxy-patcher"
	exports          = `{ set -a; eval "$(cd /etc/capi-proxy-patcher && cat proxy.env node.env)"; set +a; } 2>/dev/null # capi-proxy-patcher`
	unsets           = `eval "$(env|LC_ALL=C sed -nE 's/^(\w*_proxy)=.*/command unset \1||:/Ip')" # capi-proxy-patcher`
	unsetCredentials = `eval "$(env|LC_ALL=C sed -nE 's/^(\w*_proxy)=.*@.*/command unset \1||:/Ip')" # capi-proxy-patcher`
)

func TestCommands_ForEveryChoice(t *testing.T) {
	t.Parallel()
	for _, command := range []string{prepares, exports, unsets, unsetCredentials} {
		if len(command) > 120 || !strings.HasSuffix(command, " # capi-proxy-patcher") {
			t.Errorf("%d characters: %s", len(command), command)
		}
	}
	for _, targets := range choices() {
		var want patch.Recipe
		if len(targets) > 0 {
			want.First = []string{prepares}
		}
		pods := slices.Contains(targets, contract.TargetStaticPods)
		if pods || slices.Contains(targets, contract.TargetCommands) {
			want.First, want.Post, want.Last = append(want.First, exports), []string{exports}, []string{unsets}
		}
		if pods {
			want.Last = []string{unsetCredentials}
		}
		got := recipe(t, patch.Options{Targets: targets})
		if diff := cmp.Diff(want, patch.Recipe{First: got.First, Last: got.Last, Post: got.Post}); diff != "" {
			t.Errorf("%v (-want +got):\n%s", targets, diff)
		}
	}
}

// bootstrap runs the commands of a recipe around those of a user, in one shell as a bootstrap provider does.
type bootstrap struct {
	shell   []string
	targets []contract.Target
	// files are those of the folder of the product, by name. None means that there is no folder.
	files map[string]string
	// environment is what the shell is started with, before are the user's commands.
	environment, before []string
}

// outcome is what commands see: the variables that kubeadm would copy, sorted. It is nil if the command does not run.
type outcome struct{ Before, Kubeadm, After []string }

// eachMode runs a test in each shell that a node runs commands with: cloud-init's sh without set -e, Ignition's bash with
// it.
func eachMode(t *testing.T, test func(t *testing.T, shell []string)) {
	t.Helper()
	for _, shell := range shells.Installed(t) {
		for _, flags := range map[string][][]string{
			"dash": {nil}, "busybox": {nil}, "bash": {nil, {"-e"}, {"--posix", "-e"}},
		}[shell.Name] {
			t.Run(strings.Join(append([]string{shell.Name}, flags...), " "), func(t *testing.T) {
				t.Parallel()
				test(t, shell.With(flags...))
			})
		}
	}
}

func (b bootstrap) run(t *testing.T) (saw outcome, output string) {
	t.Helper()
	n := &node{t: t, root: t.TempDir()}
	n.write("seen/x", "")
	for name, content := range b.files {
		n.write(ourFolder+name, content)
	}
	r := recipe(t, patch.Options{Targets: b.targets})
	record := func(name string) []string { return []string{"/usr/bin/env -0 >seen/" + name} }
	commands := slices.Concat(r.First, b.before, record("before"), r.Last, record("kubeadm"), r.Post, record("after"))
	text := strings.ReplaceAll(strings.Join(commands, "\n")+"\n", "/etc/capi-proxy-patcher", n.path("etc/capi-proxy-patcher"))
	command := exec.CommandContext(t.Context(), b.shell[0], append(b.shell[1:], "-c", text)...)
	command.Env = append([]string{"PATH=" + os.Getenv("PATH")}, b.environment...)
	command.Dir = n.root
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("the bootstrap has stopped: %v\n%s", err, out)
	}
	if _, err := os.Stat(n.path("evil")); err == nil {
		t.Error("a value ran as a command")
	}
	return outcome{seen(t, n.path("seen/before")), seen(t, n.path("seen/kubeadm")), seen(t, n.path("seen/after"))}, string(out)
}

// seen are the variables of a recorded environment that kubeadm would copy, or nil if there is no record.
func seen(t *testing.T, name string) []string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Errorf("the commands did not come to %s", filepath.Base(name))
		return nil
	}
	variables := []string{}
	for variable := range bytes.SplitSeq(content, []byte{0}) {
		name, _, _ := strings.Cut(string(variable), "=")
		if strings.HasSuffix(strings.ToLower(name), "_proxy") {
			variables = append(variables, string(variable))
		}
	}
	slices.Sort(variables)
	return variables
}

// A shell that sources a file that is missing ends.
func TestCommands_ExportWhatThereIs(t *testing.T) {
	t.Parallel()
	const (
		proxy = "# Managed by capi-proxy-patcher\nHTTP_PROXY=\"http://a:s3cr%25t@p\"\nNO_PROXY=\"a\"\n"
		node  = "# Managed by capi-proxy-patcher\nNO_PROXY=\"10.0.0.1,a\"\n"
		http  = "HTTP_PROXY=http://a:s3cr%25t@p"
	)
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"no folder":              {nil, nil},
		"no files":               {map[string]string{"other": ""}, nil},
		"empty files":            {map[string]string{"proxy.env": "", "node.env": ""}, nil},
		"comments":               {map[string]string{"proxy.env": "# x\n", "node.env": "# y"}, nil},
		"no node.env":            {map[string]string{"proxy.env": proxy}, []string{http, "NO_PROXY=a"}},
		"no proxy.env":           {map[string]string{"node.env": node}, []string{"NO_PROXY=10.0.0.1,a"}},
		"both":                   {map[string]string{"proxy.env": proxy, "node.env": node}, []string{http, "NO_PROXY=10.0.0.1,a"}},
		"a script that fails":    {map[string]string{"proxy.env": proxy, "setup.sh": "exit 3\n"}, []string{http, "NO_PROXY=a"}},
		"a script that is none":  {map[string]string{"proxy.env": proxy, "setup.sh": "if (\n"}, []string{http, "NO_PROXY=a"}},
		"a script that is there": {map[string]string{"setup.sh": "cd ${0%/*}; echo NO_PROXY=new >node.env\n"}, []string{"NO_PROXY=new"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, shell []string) {
				t.Helper()
				b := bootstrap{shell: shell, targets: []contract.Target{contract.TargetCommands}, files: test.files}
				b.before = []string{"later_proxy=not-exported"}
				got, output := b.run(t)
				if diff := cmp.Diff(outcome{test.want, nil, test.want}, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s\n%s", diff, output)
				}
				if strings.Contains(output, "s3cr") {
					t.Errorf("the log has a password: %s", output)
				}
			})
		})
	}
}

func TestKubeadm_SeesNoVariableWithCredentials(t *testing.T) {
	t.Parallel()
	s := settingsOf(t, map[string]string{
		"httpProxy": "http://proxy.example.com:3128", "username": `DOM\user`, "password": "p%4@:/\"'$`\\ {{x}}{%#",
	})
	data, err := settings.Files(s, noProxy)
	if err != nil {
		t.Fatal(err)
	}
	own := "NO_PROXY=\"10.0.0.1," + noProxy + "\"\nno_proxy=\"10.0.0.1," + noProxy + "\"\n"
	files := map[string]string{"proxy.env": string(data[contract.KeyProxyEnv]), "setup.sh": fmt.Sprintf("cd ${0%%/*}; echo '%s' >node.env\n", own)}
	var exported []string
	for _, v := range s.Vars("10.0.0.1," + noProxy) {
		exported = append(exported, v.Name+"="+v.Value)
	}
	secret := []string{
		"All_Proxy=socks5://u:p@h", "SOCKS5_proxy=it's @ $x", "_x_PROXY=u:p\xff@h\n\nX_PROXY=u:p@h\nunset PATH=", "__proxy=@", "_PrOxY=@",
		"a_proxy_b_proxy=@", "nO_PrOxY=@=", "L0ng_1_name_proxy=http://u:" + strings.Repeat("p", 70_000) + "@h",
	}
	open := []string{
		"Ftp_proxy=", "ftp_PrOxY=a b\"c", "plain_PROXY=$(touch evil)`touch evil`'\"\\ % {{x}}", "latin_proxy=\xff\xfe", "many_proxy=a\nb\n-c\n",
	}
	others := []string{
		"MULTI=a\n1_proxy=x\nno such_proxy=1\nhttp_proxy_not_there\nkeep_proxy=@\n--\n-f_proxy\n\xff_proxy=@", "A_PROXY_NOT=u@h",
		"LC_ALL=C.UTF-8", "my_proxy_setting=1", "BASH_FUNC_f%%=() {  echo\nhttp_proxy=1@2\n}", "LATIN=\xff",
	}
	for target, left := range map[contract.Target][]string{
		contract.TargetCommands:   nil,
		contract.TargetStaticPods: append([]string{"NO_PROXY=10.0.0.1," + noProxy, "no_proxy=10.0.0.1," + noProxy}, open...),
	} {
		t.Run(string(target), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, shell []string) {
				t.Helper()
				b := bootstrap{shell: shell, targets: []contract.Target{target}, files: files}
				b.environment = slices.Concat(secret, open, others)
				got, output := b.run(t)
				sorted := cmpopts.SortSlices(strings.Compare)
				if diff := cmp.Diff(left, got.Kubeadm, cmpopts.EquateEmpty(), sorted); diff != "" {
					t.Errorf("kubeadm sees (-want +got):\n%s\n%s", diff, output)
				}
				if diff := cmp.Diff(slices.Concat(exported, secret, open), got.Before, sorted); diff != "" {
					t.Errorf("the user's commands see (-want +got):\n%s\n%s", diff, output)
				}
				after := slices.Concat(exported, left)
				slices.Sort(after)
				if diff := cmp.Diff(slices.Compact(after), got.After, sorted); diff != "" {
					t.Errorf("the user's commands after kubeadm see (-want +got):\n%s\n%s", diff, output)
				}
			})
		})
	}
}

// Whatever the user's commands leave in the shell, kubeadm runs.
func TestKubeadm_RunsWhateverTheUserDoes(t *testing.T) {
	t.Parallel()
	// What nobody can unset, or without programs.
	stays := map[string][]string{
		"read-only variables": {"a_proxy=@"}, "no programs": {"HTTP_PROXY=http://u:s3cr@x"}, "functions": {"HTTP_PROXY=http://u:s3cr@x"},
	}
	for name, before := range map[string][]string{
		"no variables":        {"unset HTTP_PROXY"},
		"read-only variables": {"readonly a_proxy=@ b_Proxy; export a_proxy"},
		"an empty IFS":        {"IFS="},
		"an IFS of names":     {"IFS=_HTPROXYhtproxy"},
		"no programs":         {"PATH=/nowhere"},
		"functions":           {"env() { return 1; }; cat() { return 1; }; sed() { return 1; }"},
		"options":             {"set -u; set -f; set -C; set -a"},
		"a trace":             {"set -x; set -v"},
		"a pipe that fails":   {"case $BASH_VERSION in ?*) set -o pipefail ;; esac"},
		"no file any more":    {`rm -r etc`},
		"another folder":      {"cd /; CDPATH=/; cd - >/dev/null"},
		"a variable of ours":  {"export HTTP_PROXY=http://u:p@mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, shell []string) {
				t.Helper()
				got, output := bootstrap{shell: shell, targets: []contract.Target{contract.TargetStaticPods}, before: before, files: map[string]string{
					"proxy.env": "HTTP_PROXY=\"http://u:s3cr@x\"\n", "node.env": "", "setup.sh": "",
				}}.run(t)
				if strings.Contains(output, "s3cr") {
					t.Errorf("the log has a password: %s", output)
				}
				if diff := cmp.Diff(stays[name], got.Kubeadm, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("kubeadm sees (-want +got):\n%s\n%s", diff, output)
				}
			})
		})
	}
}
