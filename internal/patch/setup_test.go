package patch_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

// sources are the parts of the script as they are in the repository.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{"setup.sh", "endpoints.sh"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
		all.WriteString("endpoints=''\n")
	}
	return strings.TrimSuffix(all.String(), "endpoints=''\n")
}

func TestSetup_IsText(t *testing.T) {
	t.Parallel()
	source, script := sources(t), patch.SetupWithEndpoints([]string{"https://a.example"})
	if lines := strings.Count(source, "\n") - 1; lines > 150 {
		t.Errorf("%d lines", lines)
	}
	if len(patch.Setup()) > 2900 || len(script) > 3700 {
		t.Errorf("%d bytes, with endpoints %d: clouds limit all of user data to 16 KiB", len(patch.Setup()), len(script))
	}
	for _, text := range []string{patch.Setup(), script} {
		if !strings.HasPrefix(text, "#!/bin/sh\n# Managed by capi-proxy-patcher\n") || !strings.HasSuffix(text, "\n") ||
			strings.Contains(text, "\n\n") {
			t.Errorf("begins with %q, ends with %q", text[:20], text[len(text)-20:])
		}
	}
	for _, bad := range []string{"${", "$$", "{{", "{%", "{#", "<<"} {
		if strings.Contains(source, bad) || strings.Contains(script, bad) {
			t.Errorf("%s is in it: clusterctl, Flux or cloud-init reads it, or it goes over lines", bad)
		}
	}
	// What removes comments and indentation does not know strings.
	for line := range strings.Lines(source) {
		if code := strings.TrimLeft(line, "\t"); strings.HasPrefix(code, "#") {
			continue
		}
		open := rune(0)
		for _, r := range strings.NewReplacer(`\\`, "", `\"`, "", `\'`, "").Replace(line) {
			switch {
			case open == 0 && (r == '"' || r == '\''):
				open = r
			case r == open:
				open = 0
			}
			if r != '\n' && r != '\t' && (r < ' ' || r > '~') {
				t.Errorf("%q is not ASCII", line)
			}
		}
		if open != 0 {
			t.Errorf("a string goes over the end of %q", line)
		}
	}
	for _, shell := range shells.Installed(t) {
		command := exec.CommandContext(t.Context(), shell.Argv[0], shell.With("-n")[1:]...)
		command.Stdin = strings.NewReader(script)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell.Name, err, out)
		}
	}
}

func TestSetup_PassesShellcheck(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed")
	}
	command := exec.CommandContext(t.Context(), "shellcheck", "--shell=sh", "-")
	command.Stdin = strings.NewReader(sources(t))
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// nodeEnv is what a node writes for a NO_PROXY.
func nodeEnv(noProxy string) string {
	return "# Managed by capi-proxy-patcher\nNO_PROXY=\"" + noProxy + "\"\nno_proxy=\"" + noProxy + "\"\n"
}

const ownAddresses = "10.0.0.5,10.9.0.1,fd00::5,"

func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	type row struct {
		change func(n *node)
		want   string
	}
	first64 := ""
	for i := range 64 {
		first64 += fmt.Sprintf("10.0.9.%d,", 100+i)
	}
	tests := map[string]row{
		"all":           {func(*node) {}, nodeEnv(ownAddresses + "node-1,node-1.example.com,localhost,.svc")},
		"no FQDN":       {func(n *node) { n.stub("hostname", "exit 1") }, nodeEnv(ownAddresses + "node-1,localhost,.svc")},
		"no host names": {func(n *node) { n.remove("bin/hostname", "proc") }, nodeEnv(ownAddresses + "localhost,.svc")},
		"all direct": {func(n *node) {
			n.write(ourFolder+"proxy.env", strings.ReplaceAll(n.read(ourFolder+"proxy.env"), "localhost,.svc", "*"))
		}, "# Managed by capi-proxy-patcher\n"},
		"as many as kube-proxy has": {
			func(n *node) {
				n.stub("ip", `i=100; while [ $i -lt 400 ]; do echo "2: eth0    inet 10.0.9.$i/24 scope global eth0"; i=$((i + 1)); done`)
				n.stub("hostname", "")
			}, nodeEnv(first64 + "node-1,localhost,.svc"),
		},
		"the same name and address twice": {
			func(n *node) {
				n.stub("ip", `for i in 1 2; do echo "2: eth$i    inet 10.0.0.9/32 scope global eth$i"; done`)
				n.stub("hostname", "echo node-1")
			}, nodeEnv("10.0.0.9,node-1,localhost,.svc"),
		},
		"an older file": {
			func(n *node) { n.write(ourFolder+"node.env", "NO_PROXY=old\n") },
			nodeEnv(ownAddresses + "node-1,node-1.example.com,localhost,.svc"),
		},
	}
	// No name of these is one that clients and shells agree about. Each is a line of both places that names come from.
	hostile := strings.Join([]string{
		"a b", "a,b", `a"b`, "$(touch evil)", "`touch evil`", `a\b`, "*", ".", "-n", "x&y", "x/y", "a'b", "ä", "\xff", "",
		`x"; touch evil; "`, "#", "a=b", "$HTTP_PROXY", "%s", "[::]", `\1`, "\t", "x\r", "_x", ":", "(", "x;", "x|y", "x<y", "~", "é.x",
	}, "\n") + "\n"
	tests["hostile names"] = row{func(n *node) {
		n.write("proc/sys/kernel/hostname", hostile)
		n.stub("hostname", "cat "+n.path("proc/sys/kernel/hostname"))
	}, nodeEnv(ownAddresses + "localhost,.svc")}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := oneNode
			if name == "all" || name == "hostile names" {
				run = eachNode
			}
			run(t, func(t *testing.T, n *node) {
				t.Helper()
				test.change(n)
				for _, verb := range [][]string{nil, {"own-addresses"}} {
					says := n.run(verb...)
					if diff := cmp.Diff(test.want, n.read(ourFolder+"node.env")); diff != "" || len(says) > 0 {
						t.Errorf("%q: says %q, node.env (-want +got):\n%s", verb, says, diff)
					}
					if info, err := os.Stat(n.path(ourFolder + "node.env")); err != nil || info.Mode() != 0o600 {
						t.Errorf("%v, %v", info, err)
					}
					if got := n.names(ourFolder); got != "node.env proxy.env trusted-ca.pem trusts" {
						t.Errorf("%q: the folder has %s", verb, got)
					}
				}
				if strings.Contains(n.calls, "systemctl") || strings.Contains(n.calls, "update") {
					t.Errorf("calls %q", n.calls)
				}
			})
		})
	}
}

// kubelet does not start if what runs before it hangs.
func TestOwnAddresses_WaitForNoNameServer(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, n *node) {
		t.Helper()
		n.stub("hostname", "exec sleep 60")
		n.under = []string{"/usr/bin/timeout", "30"} // whose status run reports
		if says := n.run("own-addresses"); len(says) > 0 || n.read(ourFolder+"node.env") != nodeEnv(ownAddresses+"node-1,localhost,.svc") {
			t.Errorf("says %q: %s", says, n.read(ourFolder+"node.env"))
		}
	})
}

// kubelet may start while the node boots.
func TestOwnAddresses_AreWholeWhenTwoWriteThem(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, n *node) {
		t.Helper()
		var done sync.WaitGroup
		for range 8 {
			command := n.command("own-addresses")
			done.Go(func() {
				if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		done.Wait()
		if n.read(ourFolder+"node.env") != nodeEnv(ownAddresses+"node-1,node-1.example.com,localhost,.svc") ||
			n.names(ourFolder) != "node.env proxy.env trusted-ca.pem" {
			t.Errorf("%s: %s", n.names(ourFolder), n.read(ourFolder+"node.env"))
		}
	})
}

// readOnly makes a folder one that nobody can write to.
func (n *node) readOnly(folder string) {
	n.t.Helper()
	if os.Geteuid() != 0 {
		if err := os.Chmod(n.path(folder), 0o500); err != nil { //nolint:gosec // a folder has to be executable
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = os.Chmod(n.path(folder), 0o700) }) //nolint:gosec // so has this
		return
	}
	inNamespace(n.t)
	n.under = []string{
		"unshare", "--mount", "/bin/sh", "-c",
		`/bin/mount --bind "$0" "$0" && /bin/mount -o remount,ro,bind "$0" && exec "$@"`, n.path(folder),
	}
}

// inNamespace skips a test that cannot make mount namespaces.
func inNamespace(t *testing.T) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("no right to make mount namespaces: %v %s", err, out)
	}
}

// failure is something that does not work, and the lines about it.
type failure struct {
	change func(n *node)
	says   []string
}

// failures are what may fail on a node.
func failures() map[string]failure {
	const (
		none       = "NO_PROXY lacks the addresses of this node: ip shows none"
		unwritten  = "NO_PROXY lacks the addresses of this node: cannot write node.env"
		noStore    = "certificates are not trusted: this system has no command for it"
		notWritten = "certificates are not trusted: cannot write /" + debianStore + "capi-proxy-patcher-1.crt"
		notUpdated = "certificates may not be trusted: update-ca-certificates --fresh failed, status "
		noReload   = "containerd and kubelet may lack the proxy: systemctl daemon-reload failed"
		noRestart  = "containerd did not restart: see journalctl -u containerd"
	)
	blocks := func(n *node) {
		n.deaf = true
		n.remove("dev/console")
		if err := syscall.Mkfifo(n.path("dev/console"), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	return map[string]failure{
		"nothing":                       {func(*node) {}, nil},
		"no ip":                         {func(n *node) { n.remove("bin/ip") }, []string{none}},
		"ip fails":                      {func(n *node) { n.stub("ip", "exit 1") }, []string{none}},
		"no address but of Services":    {func(n *node) { n.stub("ip", "echo '4: kube-ipvs0    inet 10.96.0.1/32 scope global x'") }, []string{none}},
		"no mktemp":                     {func(n *node) { n.remove("bin/mktemp") }, []string{unwritten}},
		"no mv":                         {func(n *node) { n.remove("bin/mv") }, []string{unwritten}},
		"no sed":                        {func(n *node) { n.remove("bin/sed") }, []string{none, unwritten}},
		"proxy.env cannot be read":      {func(n *node) { n.folder(ourFolder + "proxy.env") }, []string{unwritten}},
		"node.env is a folder":          {func(n *node) { n.folder(ourFolder + "node.env") }, nil},
		"no folder of a trust store":    {func(n *node) { n.remove(debianStore) }, []string{noStore}},
		"no command of a trust store":   {func(n *node) { n.remove("bin/update-ca-certificates") }, []string{noStore}},
		"a certificate is a folder":     {func(n *node) { n.folder(debianStore + "capi-proxy-patcher-1.crt") }, []string{notWritten}},
		"the mark cannot be written":    {func(n *node) { n.folder(ourFolder + "trusts") }, nil},
		"the update fails":              {func(n *node) { n.stub("update-ca-certificates", "exit 3") }, []string{notUpdated + "3"}},
		"the update hangs":              {func(n *node) { n.timesOut("60") }, []string{notUpdated + "124"}},
		"no files but the script":       {func(n *node) { n.remove(ourFolder); n.write(contract.PathSetup, "") }, nil},
		"no systemctl":                  {func(n *node) { n.remove("bin/systemctl") }, []string{noReload}},
		"no daemon-reload":              {func(n *node) { n.systemctl("active", "daemon-reload") }, []string{noReload}},
		"systemctl fails":               {func(n *node) { n.stub("systemctl", "echo active; exit 1") }, []string{noReload, noRestart}},
		"no restart":                    {func(n *node) { n.systemctl("active", "restart") }, []string{noRestart}},
		"the restart hangs":             {func(n *node) { n.timesOut("120") }, []string{noRestart}},
		"the console blocks":            {func(n *node) { blocks(n); n.remove("bin/ip") }, []string{none}},
		"the console blocks at the end": {func(n *node) { blocks(n); n.systemctl("active", "restart") }, []string{noRestart}},
		"no console": {func(n *node) {
			n.deaf = true
			n.folder("dev/console")
			n.systemctl("active", "restart")
		}, []string{noRestart}},
		"no timeout": {
			func(n *node) { n.deaf = true; n.remove("bin/timeout") }, []string{notUpdated + "127", noRestart},
		},
		"no tee": {
			func(n *node) { n.deaf = true; n.remove("bin/tee"); n.systemctl("active", "restart") }, []string{noRestart},
		},
		"nothing to run":               {func(n *node) { n.deaf = true; n.folder("bin") }, []string{none, unwritten, noReload}},
		"our folder cannot be written": {func(n *node) { n.deaf = true; n.readOnly(ourFolder) }, []string{unwritten}},
		"the trust store cannot be written": {
			func(n *node) { n.readOnly(debianStore) }, []string{notWritten},
		},
		"everything": {func(n *node) {
			n.remove("bin/ip", "bin/mktemp")
			n.stub("update-ca-certificates", "exit 1")
			n.systemctl("active", "daemon-reload")
		}, []string{none, unwritten, notUpdated + "1", noReload}},
	}
}

func TestSetup_NeverStopsABootstrap(t *testing.T) {
	t.Parallel()
	for name, test := range failures() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachNode(t, func(t *testing.T, n *node) {
				t.Helper()
				test.change(n)
				if diff := cmp.Diff(test.says, n.run(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if _, err := os.Stat(n.path("bin/systemctl")); err == nil && !strings.Contains(n.calls, "systemctl is-active") {
					t.Errorf("did not come to its end: %q", n.calls)
				}
			})
			oneNode(t, func(t *testing.T, n *node) {
				t.Helper()
				test.change(n)
				for verb, about := range map[string]string{"own-addresses": "NO_PROXY", "certificates": "certificates"} {
					want := slices.DeleteFunc(slices.Clone(test.says), func(s string) bool { return !strings.HasPrefix(s, about) })
					if len(want) == 0 && len(test.says) > 0 {
						continue // nothing that it does fails
					}
					if diff := cmp.Diff(want, n.run(verb), cmpopts.EquateEmpty()); diff != "" || strings.Contains(n.calls, "systemctl") {
						t.Errorf("%s calls %q, says (-want +got):\n%s", verb, n.calls, diff)
					}
				}
			})
		})
	}
}

func TestSetup_ForgetsProblemsThatAreNoMore(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, n *node) {
		t.Helper()
		n.stub("update-ca-certificates", "exit 1")
		n.systemctl("active", "restart")
		if says := n.run(); len(says) != 2 {
			t.Errorf("says %q", says)
		}
		n.reset()
		if n.run("certificates"); n.read(contract.PathProblems) == "" {
			t.Error("a verb has removed the file of problems")
		}
		if says := n.run(); len(says) > 0 || n.names(ourFolder) != "node.env proxy.env trusted-ca.pem trusts" {
			t.Errorf("says %q; files %s", says, n.names(ourFolder))
		}
	})
}

func TestSetup_RestartsContainerd(t *testing.T) {
	t.Parallel()
	noDropIn := func(n *node) { n.remove("etc/systemd") }
	for name, test := range map[string]struct {
		change    func(n *node)
		state     string
		noRestart bool
	}{
		"active":                     {nil, "active", false},
		"activating":                 {nil, "activating", false},
		"reloading":                  {nil, "reloading", false},
		"refreshing":                 {nil, "refreshing", false},
		"inactive":                   {nil, "inactive", true},
		"failed":                     {nil, "failed", true},
		"unknown":                    {nil, "unknown", true},
		"deactivating":               {nil, "deactivating", true},
		"certificates only":          {noDropIn, "active", false},
		"certificates only, stopped": {noDropIn, "inactive", true},
		"neither":                    {func(n *node) { noDropIn(n); n.remove(ourFolder + "trusted-ca.pem") }, "active", true},
		"variables only":             {func(n *node) { n.remove(ourFolder + "trusted-ca.pem") }, "active", false},
		"a failed update":            {func(n *node) { n.stub("update-ca-certificates", "exit 1") }, "active", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneNode(t, func(t *testing.T, n *node) {
				t.Helper()
				if test.change != nil {
					test.change(n)
				}
				n.systemctl(test.state, "")
				n.run()
				if got := strings.HasSuffix(n.calls, restarted); got == test.noRestart {
					t.Errorf("calls %q", n.calls)
				}
			})
		})
	}
}
