//go:build node

package node_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// The checks here are those of single scenarios.

// credentialsInCloudInit says which files on a node hold the credentials, all of them only for root.
func credentialsInCloudInit(t *testing.T, n *node) {
	t.Helper()
	credentialsIn(t, n, []string{
		"600 root /etc/capi-proxy-patcher/proxy.env",
		"600 root /var/lib/cloud/instances/i-1/cloud-config.txt",
		"400 root /var/lib/cloud/instances/i-1/obj.pkl",
		"600 root /var/lib/cloud/instances/i-1/user-data.txt",
		"600 root /var/lib/cloud/instances/i-1/user-data.txt.i",
		"600 root /var/lib/cloud/seed/nocloud/user-data",
		"600 root /var/lib/node-test/post.env",
		"600 root /var/lib/node-test/pre.env",
	})
}

// credentialsInIgnition is the same for Ignition, which keeps nothing.
func credentialsInIgnition(t *testing.T, n *node) {
	t.Helper()
	credentialsIn(t, n, []string{
		"600 root /etc/capi-proxy-patcher/proxy.env",
		"600 root /var/lib/node-test/post.env",
		"600 root /var/lib/node-test/pre.env",
	})
}

func credentialsIn(t *testing.T, n *node, want []string) {
	t.Helper()
	t.Run("root finds the credentials in known places only, closed to others", func(t *testing.T) {
		modes := n.MustRun(t, append([]string{"stat", "--format=%a %U %n"}, filesWith(t, n, needle, false)...)...)
		if diff := cmp.Diff(strings.Join(want, "\n")+"\n", modes); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		processes := n.MustRun(t, "sh", "-c", `for p in $(grep -lF `+needle+` /proc/[0-9]*/environ 2>/dev/null); do
			cat "${p%environ}comm"; done 2>/dev/null | sort -u`)
		if processes != "containerd\nsleep\n" {
			t.Errorf("processes with the credentials: %q, want containerd and what stands in for kubelet", processes)
		}
	})
}

// trustOrder checks that the certificates were there when containerd read them, which it does once.
func trustOrder(t *testing.T, n *node) {
	t.Helper()
	t.Run("the certificates were installed before containerd was restarted", func(t *testing.T) {
		for _, link := range []string{"capi-proxy-patcher-1.pem", "capi-proxy-patcher-2.pem"} {
			n.MustRun(t, "test", "-s", "/etc/ssl/certs/"+link)
		}
		installed, err := strconv.ParseFloat(strings.TrimSpace(n.MustRun(t, "stat", "--format=%.6Y",
			"/etc/ssl/certs/ca-certificates.crt")), 64)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSpace(n.MustRun(t, "systemctl", "show", "--timestamp=us+utc", "--property=ExecMainStartTimestamp",
			"--value", "containerd"))
		started, err := time.Parse("Mon 2006-01-02 15:04:05 MST", text)
		if err != nil {
			t.Fatal(err)
		}
		if at := float64(started.UnixMicro()) / 1e6; at <= installed {
			t.Errorf("containerd started at %f, the certificates were installed at %f", at, installed)
		}
		n.saw(t, "CA installed before the restart")
	})
}

const (
	// enoughForTLS is more than curl and probe need.
	enoughForTLS = time.Minute
	serverURL    = "https://127.0.0.1:8443/"
	// curlUntrusted is curl's exit status for a certificate that it does not trust.
	curlUntrusted = "exit status 60"
)

func startServer(t *testing.T, n *node) {
	t.Helper()
	n.MustRun(t, "systemd-run", "--quiet", "--unit=probe", "/usr/local/bin/probe", "serve", "127.0.0.1:8443",
		"/usr/share/node-test/server.pem", "/usr/share/node-test/server.key")
	n.WaitFor(t, enoughForTLS, "curl", "--silent", "--insecure", serverURL)
}

func trustedServer(t *testing.T, n *node) {
	t.Helper()
	t.Run("curl and a static Go program trust a server of the Secret's second certificate", func(t *testing.T) {
		startServer(t, n)
		n.MustRun(t, "curl", "--silent", "--show-error", "--fail", serverURL)
		n.MustRun(t, "probe", "get", serverURL)
		n.saw(t, "server trusted by curl and Go")
	})
}

func untrustedServer(t *testing.T, n *node) {
	t.Helper()
	t.Run("neither curl nor a static Go program trusts a server of the Secret's certificate", func(t *testing.T) {
		startServer(t, n)
		if _, err := n.Run("curl", "--silent", "--show-error", serverURL); err == nil ||
			!strings.Contains(err.Error(), curlUntrusted) {
			t.Errorf("curl: %v, want %s", err, curlUntrusted)
		}
		if _, err := n.Run("probe", "get", serverURL); err == nil ||
			!strings.Contains(err.Error(), "certificate signed by unknown authority") {
			t.Errorf("Go: %v, want an unknown authority", err)
		}
		n.saw(t, "server not trusted")
	})
}

// validUserData asks cloud-init's own schema.
func validUserData(t *testing.T, n *node) {
	t.Helper()
	t.Run("the user-data passes cloud-init's schema", func(t *testing.T) {
		out, err := n.Run("cloud-init", "schema", "--system")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !strings.Contains(out, "Valid cloud-config: system userdata") {
			t.Errorf("cloud-init schema: %s", out)
		}
		if line := vocabulary.LineWith(n.ReadFile(t, "/var/log/cloud-init.log"), "schema.py[WARNING]"); line != "" {
			t.Errorf("cloud-init.log: %s", line)
		}
		n.saw(t, "schema valid")
	})
}

// secondBoot checks that a node that is booted again needs no bootstrap for its proxy.
func secondBoot(t *testing.T, n *node) {
	t.Helper()
	t.Run("a second boot changes nothing", func(t *testing.T) {
		n.Stop(t)
		n.Start(t)
		for _, unit := range []string{"containerd", "kubelet", "multi-user.target"} {
			n.WaitFor(t, bootLimit, "systemctl", "is-active", "--quiet", unit)
		}
		if !n.ignition {
			n.WaitFor(t, bootLimit, "test", "-e", "/run/cloud-init/result.json")
			if errs := n.initErrors(t); len(errs) > 0 {
				t.Errorf("cloud-init: %q", errs)
			}
		}
		servicesHaveVariables(t, n)
		if got := starts(t, n); got != 1 {
			t.Errorf("containerd was started %d times, want once", got)
		}
		n.MustRun(t, "ctr", "version")
		if got := strings.Count(n.ReadFile(t, "/var/lib/node-test/kubeadm.args"), "\n"); got != 1 {
			t.Errorf("kubeadm ran %d times, want once", got)
		}
		n.saw(t, "second boot the same")
	})
}
