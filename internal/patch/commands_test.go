package patch_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

// ownAddress is that of the node.
const ownAddress = "10.77.0.10"

// bootstrap runs what a bootstrap provider makes of a recipe around the commands of a user, in one shell.
type bootstrap struct {
	shell []string
	// environment is what the shell is started with, beside PATH. HTTPS_PROXY is in it.
	environment []string
	before      []string // the user's preKubeadmCommands
	settings    proxyconfig.Settings
	options     patch.Options
	silent      bool // nothing of ours is left that could say why kubeadm does not run
}

// outcome is what the commands see: the variables that kubeadm would copy, sorted. kubeadm is nil if it does not run.
type outcome struct{ before, kubeadm, after []string }

// eachBootstrap runs a test for a proxy without credentials and each shell that a node runs commands with: cloud-init's
// sh without set -e, Ignition's bash with it.
func eachBootstrap(t *testing.T, test func(t *testing.T, b bootstrap)) {
	t.Helper()
	for _, shell := range shells.Installed(t) {
		modes := map[string][]string{shell.Name: nil}
		if shell.Name == "bash" {
			modes["bash -e"], modes["bash as sh"] = []string{"-e"}, []string{"--posix"}
		}
		for name, flags := range modes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, bootstrap{shell: shell.With(flags...), settings: plain(t)})
			})
		}
	}
}

// withOwn is NO_PROXY as the node has it.
const withOwn = noProxy + "," + ownAddress

// exported are the variables of the settings as the environment has them, with more.
func (b bootstrap) exported(more ...string) []string {
	for _, v := range b.settings.Vars(withOwn) {
		more = append(more, v.Name+"="+v.Value)
	}
	slices.Sort(more)
	return more
}

// run returns what was seen, and what was printed beside the own addresses. Of the recipe it leaves out the commands
// about systemd.
func (b bootstrap) run(t *testing.T) (outcome, string) {
	t.Helper()
	root := t.TempDir()
	data, err := resolve.Files(b.settings, noProxy)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		contract.PathProxyEnv: data[contract.KeyProxyEnv],
		contract.PathSetup:    []byte(patch.Setup()),
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, prints := range map[string]string{
		"ip": "2: eth0    inet " + ownAddress + "/24 brd 10.77.0.255 scope global eth0", "hostname": "",
	} {
		stub := "#!/bin/sh\necho '" + prints + "'\n"
		if err := os.WriteFile(filepath.Join(root, name), []byte(stub), 0o700); err != nil { //nolint:gosec // a command
			t.Fatal(err)
		}
	}
	if b.options.Targets == nil {
		b.options.Targets = []contract.Target{contract.TargetCommands}
	}
	r := recipe(t, b.options)
	record := func(name string) []string { return []string{"/usr/bin/env -0 >" + root + "/" + name} }
	script := slices.Concat(r.First, b.before, record("before"), r.Last, record("kubeadm"), r.Post, record("after"))
	text := strings.ReplaceAll(strings.Join(script, "\n")+"\n", "/etc/capi-proxy-patcher/", root+
		"/etc/capi-proxy-patcher/")
	command := exec.CommandContext(t.Context(), b.shell[0], append(b.shell[1:], "-c", text)...)
	command.Env = append([]string{"PATH=" + root + ":" + os.Getenv("PATH"), "CAPI_PROXY_PATCHER_ROOT=" + root, "HTTPS_PROXY=http://of.the.image:1"}, b.environment...)
	command.Dir = root
	output, err := command.CombinedOutput()
	if _, err := os.Stat(root + "/ran"); err == nil {
		t.Error("a name ran as a command")
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("running\n%s: %v", text, err)
	}
	said := strings.ReplaceAll(string(output),
		"capi-proxy-patcher: NO_PROXY of this node has its own addresses and names: "+ownAddress+"\n", "")
	return outcome{seen(t, root+"/before"), seen(t, root+"/kubeadm"), seen(t, root+"/after")}, said
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

func TestKubeadm_SeesNoProxyVariableInAnySpelling(t *testing.T) {
	t.Parallel()
	eachBootstrap(t, func(t *testing.T, b bootstrap) {
		t.Helper()
		b.settings = settings(t, map[string]string{
			"httpProxy": "http://proxy.example.com:3128", "username": `DOM\user`,
			"password": "p%4@:/\"'$`\\ {{x}}{%#",
		})
		own := []string{
			"All_Proxy=socks5://u:p@h", "Ftp_proxy=", "_PROXY=u:p@h", "_proxy=\xff\n\nX_PROXY=u:p@h\nunset PATH=", "plain_PROXY=$(id)`id`'\"\\ % {{x}}",
		}
		b.environment = append(slices.Clone(own), "TEXT=a\nb_proxy=c", "A_PROXY_NOT=u@h", "LC_ALL=C.UTF-8")
		b.before = []string{"IFS=_; set -f"}
		got, output := b.run(t)
		want := outcome{
			before: b.exported(own...), kubeadm: []string{},
			after: b.exported(),
		}
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
		"sed that prints nothing":              func(b *bootstrap) { b.before = []string{"echo >sed; chmod +x sed"} },
		"no cat":                               func(b *bootstrap) { b.before = []string{"echo exit 1 >cat; chmod +x cat"} },
		"tr that does not know zero bytes":     func(b *bootstrap) { b.before = []string{"echo exec cat >tr; chmod +x tr"} },
		"a script that is cut off":             func(b *bootstrap) { b.before, b.silent = []string{": >etc/capi-proxy-patcher/setup.sh"}, true },
		"no script":                            func(b *bootstrap) { b.before, b.silent = []string{"rm etc/capi-proxy-patcher/setup.sh"}, true },
		"sh that is a function of the user":    func(b *bootstrap) { b.before, b.silent = []string{"sh() { :; }"}, true },
		"no sh":                                func(b *bootstrap) { b.before, b.silent = []string{"PATH=/nowhere"}, true },
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
				case !dropped && !b.silent && !strings.HasSuffix(output, says):
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
	verbs := map[string]bool{}
	for version := 1; version <= patch.OutputVersion; version++ {
		for _, targets := range choices() {
			for _, command := range commandsOf(recipe(t, patch.Options{Version: version, Targets: targets})) {
				_, call, isCall := strings.Cut(command, "sh "+contract.PathSetup+" ")
				verb := call[:max(0, strings.IndexAny(call+" ", ` )`))]
				if verbs[verb] = true; !isCall {
					t.Errorf("%q does not call the script", command)
				}
				if !regexp.MustCompile(`(?m)^([a-z-]+ \| )?` + verb + `( \| [a-z-]+)?\) `).MatchString(patch.Setup()) {
					t.Errorf("specs of output version %d call setup.sh %s, which the script does not know", version, verb)
				}
			}
		}
	}
	if len(verbs) != 8 {
		t.Errorf("verbs: %v", verbs)
	}
}

// choices are all sets of targets.
func choices() [][]contract.Target {
	all := contract.AllTargets()
	var sets [][]contract.Target
	for bits := 1; bits < 1<<len(all); bits++ {
		var set []contract.Target
		for i, target := range all {
			if bits>>i&1 == 1 {
				set = append(set, target)
			}
		}
		sets = append(sets, set)
	}
	return sets
}

func commandsOf(r patch.Recipe) []string { return slices.Concat(r.First, r.Last, r.Post) }

func TestCommands_AreShortAndMarked(t *testing.T) {
	t.Parallel()
	for _, targets := range choices() {
		for _, command := range commandsOf(recipe(t, patch.Options{Targets: targets})) {
			if len(command) > 100 || !strings.HasSuffix(command, " # capi-proxy-patcher") {
				t.Errorf("with targets %v, %d characters: %s", targets, len(command), command)
			}
		}
	}
}

// The user's commands may bring an address, and kubelet starts after them. A node that only trusts certificates has no
// variables.
func TestCommands_AddOwnAddressesBeforeAndAfterTheUsers(t *testing.T) {
	t.Parallel()
	const (
		first = "sh /etc/capi-proxy-patcher/setup.sh own-addresses || : # capi-proxy-patcher"
		last  = "sh /etc/capi-proxy-patcher/setup.sh refresh-addresses || : # capi-proxy-patcher"
	)
	for _, targets := range choices() {
		r := recipe(t, patch.Options{Targets: targets})
		before := !slices.Equal(targets, []contract.Target{contract.TargetTrust})
		after := slices.ContainsFunc(targets, func(target contract.Target) bool {
			return target != contract.TargetTrust && target != contract.TargetContainerd
		})
		if got := len(r.First) > 0 && r.First[0] == first; got != before {
			t.Errorf("targets %v: first commands are %q", targets, r.First)
		}
		if got := len(r.Last) > 0 && r.Last[0] == last; got != after {
			t.Errorf("targets %v: last commands are %q", targets, r.Last)
		}
	}
}

func TestStaticPods_HaveAnAddressThatTheUserAdded(t *testing.T) {
	t.Parallel()
	eachBootstrap(t, func(t *testing.T, b bootstrap) {
		t.Helper()
		b.options.Targets = []contract.Target{contract.TargetStaticPods}
		b.before = []string{`echo "echo 2: eth0 inet6 fd00::10/64 scope global; echo 1: lo inet 10.77.0.60/32 scope global" >ip`}
		saw, output := b.run(t)
		more := noProxy + ",fd00::10,10.77.0.60"
		if !slices.Contains(saw.before, "NO_PROXY="+withOwn) || !slices.Contains(saw.kubeadm, "NO_PROXY="+more) ||
			!slices.Contains(saw.after, "no_proxy="+more) {
			t.Errorf("the user sees %q, kubeadm %q, the user then %q: %s", saw.before, saw.kubeadm, saw.after, output)
		}
		b.before = append(b.before, "NO_PROXY=mine")
		if saw, output := b.run(t); !slices.Contains(saw.kubeadm, "NO_PROXY=mine") {
			t.Errorf("in place of the user's list kubeadm sees %q: %s", saw.kubeadm, output)
		}
	})
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
			"HTTPS_PROXY=http://proxy.example.com:3129", "HTTP_PROXY=http://proxy.example.com:3128", "NO_PROXY=" + withOwn,
			"http_proxy=http://proxy.example.com:3128", "https_proxy=http://proxy.example.com:3129", "no_proxy=" + withOwn,
		}
		if diff := cmp.Diff(want, saw.kubeadm); diff != "" {
			t.Errorf("kubeadm sees (-want +got):\n%s\n%s", diff, output)
		}
	})
	eachBootstrap(t, func(t *testing.T, b bootstrap) {
		t.Helper()
		b.options.Targets = []contract.Target{contract.TargetStaticPods}
		b.settings = settings(t, map[string]string{"httpProxy": "http://p:1", "username": "u", "password": "s3cr%@\"$`{{"})
		b.environment = []string{"HTTPS_PROXY=http://of.the.image:1"}
		saw, output := b.run(t)
		if diff := cmp.Diff([]string{"NO_PROXY=" + withOwn, "no_proxy=" + withOwn}, saw.kubeadm); diff != "" {
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
