package patch_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/nodescript"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

// bootstrap runs what a bootstrap provider makes of a recipe around the commands of a user, in one shell.
type bootstrap struct {
	shell []string
	// environment is what the shell is started with, beside PATH. HTTPS_PROXY is in it.
	environment []string
	before      []string // the user's preKubeadmCommands
	options     patch.Options
}

// outcome is what the commands see: the variables that kubeadm would copy, sorted. kubeadm is nil if it does not run.
type outcome struct{ before, kubeadm, after []string }

// eachShell runs a test for each shell that a node runs commands with: cloud-init's sh without set -e, Ignition's bash
// with it.
func eachShell(t *testing.T, test func(t *testing.T, argv []string)) {
	t.Helper()
	for _, shell := range shells.Installed(t) {
		modes := map[string][]string{shell.Name: nil}
		if shell.Name == "bash" {
			modes["bash -e"], modes["bash as sh"] = []string{"-e"}, []string{"--posix"}
		}
		for name, flags := range modes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, shell.With(flags...))
			})
		}
	}
}

// eachBootstrap runs a test for each shell and delivery of a proxy without credentials.
func eachBootstrap(t *testing.T, test func(t *testing.T, b bootstrap)) {
	t.Helper()
	for _, delivery := range []string{contract.DeliveryReference, contract.DeliveryInline} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			eachShell(t, func(t *testing.T, argv []string) {
				t.Helper()
				test(t, bootstrap{shell: argv, options: patch.Options{Delivery: delivery, Settings: plain(t), NoProxy: noProxy}})
			})
		})
	}
}

// run returns what was seen, and what was printed. Of the recipe it leaves out the commands about systemd.
func (b bootstrap) run(t *testing.T) (outcome, string) {
	t.Helper()
	root := t.TempDir()
	data, err := patch.SecretData(b.options.Settings, noProxy)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		contract.PathProxyEnv: data[contract.KeyProxyEnv],
		contract.PathSetup:    []byte(nodescript.Setup()),
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if b.options.Targets == nil {
		b.options.Targets = []contract.Target{contract.TargetKubeadm}
	}
	r := recipe(t, b.options)
	record := func(name string) []string { return []string{"/usr/bin/env -0 >" + root + "/" + name} }
	script := slices.Concat(r.First, b.before, record("before"), r.Last, record("kubeadm"), r.Post, record("after"))
	text := strings.ReplaceAll(strings.Join(script, "\n")+"\n", "/etc/capi-proxy-patcher/", root+
		"/etc/capi-proxy-patcher/")
	command := exec.CommandContext(t.Context(), b.shell[0], append(b.shell[1:], "-c", text)...)
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HTTPS_PROXY=http://of.the.image:1"}, b.environment...)
	command.Dir = root
	output, err := command.CombinedOutput()
	if _, err := os.Stat(root + "/ran"); err == nil {
		t.Error("a name ran as a command")
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("running\n%s: %v", text, err)
	}
	return outcome{seen(t, root+"/before"), seen(t, root+"/kubeadm"), seen(t, root+"/after")}, string(output)
}

// seen are the variables of a recorded environment that kubeadm would copy, or nil if there is no record.
func seen(t *testing.T, name string) []string {
	t.Helper()
	content, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
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

// exported are the variables of settings as the environment has them, with more.
func exported(s proxyconfig.Settings, more ...string) []string {
	for _, v := range s.Vars(noProxy) {
		more = append(more, v.Name+"="+v.Value)
	}
	slices.Sort(more)
	return more
}

func TestKubeadm_SeesNoProxyVariableInAnySpelling(t *testing.T) {
	t.Parallel()
	eachBootstrap(t, func(t *testing.T, b bootstrap) {
		t.Helper()
		own := []string{
			"All_Proxy=socks5://u:p@h", "Ftp_proxy=", "_PROXY=u:p@h", "_proxy=\xff\n\nX_PROXY=u:p@h\nunset PATH=", "plain_PROXY=$(id)`id`'\"\\ % {{x}}",
		}
		b.environment = append(slices.Clone(own), "TEXT=a\nb_proxy=c", "A_PROXY_NOT=u@h", "LC_ALL=C.UTF-8")
		b.before = []string{"IFS=_; set -f"}
		got, output := b.run(t)
		want := outcome{
			before: exported(b.options.Settings, own...), kubeadm: []string{},
			after: exported(b.options.Settings),
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" || output != "" {
			t.Errorf("variables (-want +got):\n%s\n%s", diff, output)
		}
	})
}

func TestKubeadm_SeesNoCredential(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, argv []string) {
		t.Helper()
		s := settings(t, map[string]string{
			"httpProxy": "http://proxy.example.com:3128", "username": `DOM\user`,
			"password": "p%4@:/\"'$`\\ {{x}}{%#",
		})
		got, output := bootstrap{shell: argv, options: patch.Options{Settings: s}}.run(t)
		want := outcome{before: exported(s), kubeadm: []string{}, after: exported(s)}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" || output != "" {
			t.Errorf("variables (-want +got):\n%s\n%s", diff, output)
		}
	})
}

// What a shell cannot unset must not reach kubeadm. dash and busybox do not hand down a name that is none of theirs.
func TestKubeadm_DoesNotRunIfAVariableStays(t *testing.T) {
	t.Parallel()
	const says = "capi-proxy-patcher: a variable whose name ends in _proxy stays in the environment of kubeadm: take it out of the image or of " +
		"your commands, or leave kubeadm out of the annotation capi-proxy-patcher.io/targets\n"
	for name, change := range map[string]func(b *bootstrap){
		"a name that is none":                  func(b *bootstrap) { b.environment = []string{"a.http_proxy=u:p@h"} },
		"a name that begins with a digit":      func(b *bootstrap) { b.environment = []string{"9_proxy=u:p@h"} },
		"a name that is a command":             func(b *bootstrap) { b.environment = []string{"$(touch ran)`touch ran`;touch ran;_proxy=u:p@h"} },
		"a name with a newline":                func(b *bootstrap) { b.environment = []string{"a\nb_Proxy=u:p@h"} },
		"a name that is no UTF-8":              func(b *bootstrap) { b.environment = []string{"\xffx_PROXY=u:p@h", "LC_ALL=C.UTF-8"} },
		"a variable that can only be read":     func(b *bootstrap) { b.before = []string{"readonly x_Proxy=u:p@h; export x_Proxy"} },
		"a machine without the commands":       func(b *bootstrap) { b.before = []string{"sed() { :; }"} },
		"env that does not know zero bytes":    func(b *bootstrap) { b.before = []string{`env() { [ "$1" != -0 ] || return 1; command env "$@"; }`} },
		"tr that does not know them":           func(b *bootstrap) { b.before = []string{"tr() { cat; }"} },
		"unset that is a function of the user": func(b *bootstrap) { b.before = []string{"command() { :; }"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachBootstrap(t, func(t *testing.T, b bootstrap) {
				t.Helper()
				change(&b)
				got, output := b.run(t)
				dropped := filepath.Base(b.shell[0]) != "bash" && b.before == nil
				switch {
				case dropped && (got.kubeadm == nil || len(got.kubeadm) > 0):
					t.Errorf("kubeadm sees %q: %s", got.kubeadm, output)
				case !dropped && got.kubeadm != nil:
					t.Errorf("kubeadm runs and sees %q: %s", got.kubeadm, output)
				case !dropped && !strings.HasSuffix(output, says):
					t.Errorf("says %q, want %q", output, says)
				}
				if strings.Contains(output, "u:p@h") {
					t.Errorf("the log has a value: %s", output)
				}
			})
		})
	}
}

func TestSetup_HasTheVerbsOfEveryOutputVersion(t *testing.T) {
	t.Parallel()
	verbs := 0
	for version := 1; version <= patch.OutputVersion; version++ {
		for _, command := range recipe(t, patch.Options{Version: version}).First {
			call, isCall := strings.CutPrefix(command, "sh "+contract.PathSetup+" ")
			if verb, _, _ := strings.Cut(call, " "); isCall {
				verbs++
				if !strings.Contains(nodescript.Setup(), "\n"+verb+") ") {
					t.Errorf("specs of output version %d call setup.sh %s, which the script does not know", version, verb)
				}
			}
		}
	}
	if verbs < 3 {
		t.Errorf("%d verbs", verbs)
	}
}

func TestStaticPods_KeepVariablesWithoutCredentials(t *testing.T) {
	t.Parallel()
	eachBootstrap(t, func(t *testing.T, b bootstrap) {
		t.Helper()
		b.options.Targets = []contract.Target{contract.TargetStaticPods}
		b.environment = []string{"FTP_PROXY=http://u:s3cr@p:1", "rude_proxy=a\nHTTP_PROXY=x@y"}
		b.before = []string{"export ALL_PROXY='http://$(touch ran)@p'"}
		saw, output := b.run(t)
		want := []string{
			"HTTPS_PROXY=http://proxy.example.com:3129", "HTTP_PROXY=http://proxy.example.com:3128", "NO_PROXY=" + noProxy,
			"http_proxy=http://proxy.example.com:3128", "https_proxy=http://proxy.example.com:3129", "no_proxy=" + noProxy,
		}
		if diff := cmp.Diff(want, saw.kubeadm); diff != "" {
			t.Errorf("kubeadm sees (-want +got):\n%s\n%s", diff, output)
		}
	})
	eachShell(t, func(t *testing.T, argv []string) {
		t.Helper()
		b := bootstrap{shell: argv, options: patch.Options{
			Delivery: contract.DeliveryReference, Settings: settings(t, map[string]string{"httpProxy": "http://p:1", "username": "u", "password": "s3cr%@\"$`{{"}), NoProxy: noProxy, Targets: []contract.Target{contract.TargetStaticPods},
		}}
		b.environment = []string{"HTTPS_PROXY=http://of.the.image:1"}
		saw, output := b.run(t)
		if diff := cmp.Diff([]string{"NO_PROXY=" + noProxy, "no_proxy=" + noProxy}, saw.kubeadm); diff != "" {
			t.Errorf("with credentials kubeadm sees (-want +got):\n%s\n%s", diff, output)
		}
		b.environment = []string{"a.http_proxy=http://u:p@x"}
		// Some shells drop such a variable; beside others kubeadm does not run.
		saw, output = b.run(t)
		if strings.Contains(strings.Join(saw.kubeadm, " "), "@") || saw.kubeadm == nil && !strings.Contains(output, "leave static-pods out") {
			t.Errorf("kubeadm runs beside a variable that no shell can unset: %q %s", saw.kubeadm, output)
		}
	})
}
