package patch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

// endpoints are as a proxy Secret may have them: with a token, and with characters of a shell.
var endpoints = []string{
	"https://registry.corp/v2/?token=secret", "https://registry.corp/$(reboot)';reboot", "http://[fd00::1]:5000/v2/",
}

const (
	notRunning = "capi-proxy-patcher: containerd is not running (inactive), nothing to restart\n"
	unreached  = "capi-proxy-patcher: readiness endpoint https://registry.corp does not answer: "
	noSecond   = "capi-proxy-patcher: readiness endpoint http://[fd00::1]:5000 does not answer: "
)

// asking is a node whose script asks endpoints by a curl with the body.
func asking(t *testing.T, shell []string, curl string) *tree {
	t.Helper()
	n := newTree(t, shell...)
	n.write("etc/capi-proxy-patcher/setup.sh", patch.SetupAsking(endpoints))
	n.write("etc/capi-proxy-patcher/proxy.env", "# Managed by capi-proxy-patcher\nHTTPS_PROXY=\"http://user:secret@proxy.corp:1\"\nNO_PROXY=\"a\"\n")
	n.write("etc/capi-proxy-patcher/node.env", "NO_PROXY=\"a,10.0.0.1\"\n")
	n.write("dev/console", "")
	n.tool("sh")
	n.stubs("inactive", nil)
	if curl != "" {
		n.stub("curl", curl)
	}
	return n
}

func TestRestartContainerd_ReportsReadinessEndpoints(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ curl, want string }{
		"all answer":                   {"printf '401 200 '", "capi-proxy-patcher: readiness endpoints answer\n"},
		"without a proxy":              {"printf '200 000 '", "capi-proxy-patcher: readiness endpoints answer\n"},
		"the proxy wants a password":   {"case $* in *https*) printf '000 407 '; exit 56; esac; printf '407 000 '", unreached + "status 407 of the proxy\n" + noSecond + "status 407\n"},
		"the proxy finds nothing":      {"case $* in *https*) printf '000 503 '; exit 56; esac; printf '504 000 '", unreached + "status 503 of the proxy\n" + noSecond + "status 504\n"},
		"no name, no connection":       {"printf '000 000 '; case $* in *https*) exit 5; esac; exit 7", unreached + "no address for its name, or that of the proxy\n" + noSecond + "no connection\n"},
		"no name, no answer":           {"printf '000 000 '; case $* in *https*) exit 6; esac; exit 28", unreached + "no address for its name, or that of the proxy\n" + noSecond + "no answer in 5 s\n"},
		"a certificate, another cause": {"printf '000 200 '; case $* in *https*) exit 60; esac; exit 99", unreached + "certificate not trusted\n" + noSecond + "curl failed\n"},
		"curl is killed":               {"kill -9 $$", unreached + "no answer in 5 s\n" + noSecond + "no answer in 5 s\n"},
		"curl does not know an option": {"echo secret >&2; exit 2", unreached + "curl failed\n" + noSecond + "curl failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, shell := range shells.Installed(t) {
				n := asking(t, shell.Argv, `env | grep _PROXY= >"$CALLS.env"; `+test.curl)
				n.tool("env")
				n.tool("grep")
				got := n.run("restart-containerd")
				if diff := cmp.Diff(treeOutcome{Stdout: notRunning + test.want, Calls: got.Calls}, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", shell.Name, diff)
				}
				if diff := cmp.Diff(test.want, n.read("dev/console")); diff != "" {
					t.Errorf("%s: console (-want +got):\n%s", shell.Name, diff)
				}
				calls := strings.SplitAfter(got.Calls, "\n")
				if len(calls) != 4 || strings.Contains(got.Calls, "secret") || strings.Contains(got.Calls, "reboot") ||
					!strings.HasSuffix(calls[1], " https://registry.corp/\n") || !strings.HasSuffix(calls[2], " http://[fd00::1]:5000/\n") {
					t.Errorf("%s: calls %q", shell.Name, calls)
				}
				if env := n.read("calls.env"); !strings.Contains(env, "HTTPS_PROXY=http://user:secret@proxy.corp:1\n") ||
					!strings.Contains(env, "NO_PROXY=a,10.0.0.1\n") {
					t.Errorf("%s: curl has %q", shell.Name, env)
				}
			}
		})
	}
}

// Nothing is asked on a node without variables or curl, and without endpoints the script is that of every other node.
func TestRestartContainerd_AsksNothingItCannot(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		n = asking(t, n.shell, "")
		want := treeOutcome{Stdout: notRunning + "capi-proxy-patcher: readiness endpoints are not asked: curl not found\n", Calls: isActive}
		if diff := cmp.Diff(want, n.run("restart-containerd")); diff != "" {
			t.Errorf("without curl (-want +got):\n%s", diff)
		}
		n.stub("curl", "exit 1")
		n.remove("etc/capi-proxy-patcher/proxy.env")
		if diff := cmp.Diff(treeOutcome{Stdout: notRunning, Calls: isActive}, n.run("restart-containerd")); diff != "" {
			t.Errorf("without variables (-want +got):\n%s", diff)
		}
	})
	for _, bad := range []string{"{{", "{%", "{#", "${", "$$", "\n#"} {
		if strings.Count(patch.SetupAsking(endpoints), bad) != strings.Count(patch.Setup(), bad) {
			t.Errorf("%s is in it", bad)
		}
	}
	for _, none := range [][]string{nil, {"registry.corp"}, {"https:///"}, {"ftp://a"}, {"https://a'b"}, {"https://$a"}} {
		if patch.SetupAsking(none) != patch.Setup() {
			t.Errorf("%q changes the script", none)
		}
	}
}

// Other verbs end as they do in a script that asks nothing.
func TestSetupAsking_AsksForOneVerbOnly(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		for _, verb := range []string{"daemon-reload", "install-ca", "no-verb"} {
			n := asking(t, n.shell, "exit 1")
			got := n.run(verb)
			n.write("etc/capi-proxy-patcher/setup.sh", patch.Setup())
			if diff := cmp.Diff(n.run(verb), got); diff != "" {
				t.Errorf("%s (-without +with):\n%s", verb, diff)
			}
			if console := n.read("dev/console"); console != "" {
				t.Errorf("%s: console %q", verb, console)
			}
		}
	})
}

// An endpoint that hangs is given up, and so are those after it when it takes too long.
func TestRestartContainerd_EndsWhenEndpointsHang(t *testing.T) {
	t.Parallel()
	many := make([]string, 16)
	for i := range many {
		many[i] = "https://registry-" + string(rune('a'+i)) + ".corp"
	}
	n := asking(t, shells.Installed(t)[0].Argv, "exec sleep 300")
	n.write("etc/capi-proxy-patcher/setup.sh", patch.SetupAsking(many))
	n.env = append(n.env, "CAPI_PROXY_PATCHER_WAIT=1")
	got := n.run("restart-containerd")
	if asked := strings.Count(got.Calls, "curl "); got.Exit != 0 || asked == 0 || asked > 3 ||
		!strings.HasSuffix(got.Stdout, ": no answer in 1 s\ncapi-proxy-patcher: further readiness endpoints are not asked\n") {
		t.Errorf("%+v", got)
	}
}
