//go:build node

package kubernetes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/workload"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	stepRestore = "in place: the label goes, and the nodes have nothing of the product"
	stepAdopt   = "in place: nodes without the product get it, drop-ins of somebody else being replaced"
	stepReturn  = "in place: the label goes, and the nodes are as before"

	// filesOfNode prints every file below folders that the product or its commands write, with a digest.
	filesOfNode = `for folder in /etc /usr/local/share; do
	find $folder -printf '%p %y %m %u %g %l\n'
	find $folder -type f -exec sha256sum {} +
done | sort`
	// replacedFolder has the files of somebody else.
	replacedFolder = "/etc/capi-proxy-patcher/replaced"
	// handWritten writes a drop-in with which kubelet reaches the API server, and containerd the registry of the image
	// that is pulled again.
	handWritten = `umask 027 && mkdir -p $(dirname $0) && printf '[Service]\nEnvironment=HTTPS_PROXY=http://mine:1 NO_PROXY=10.0.0.0/8,` + registryHost + `\n' >$0`
)

// adopt takes the product from nodes that booted with it, brings it back to them while the worker has drop-ins that
// were written by hand, and takes it away again.
func (r *running) adopt(t *testing.T) {
	t.Helper()
	r.report.Step(t, stepRestore)
	data, booted := r.generated(t), map[string]map[string]string{}
	for _, n := range r.nodes() {
		booted[n.name] = map[string]string{}
		for _, path := range patch.ManagedPaths() {
			booted[n.name][path] = n.ReadFile(t, path)
		}
	}
	r.restore(t, stepRestore)
	for _, n := range r.nodes() {
		r.lacksProduct(t, n)
	}

	r.report.Step(t, stepAdopt)
	for _, service := range []string{"containerd", "kubelet"} {
		r.worker.MustRun(t, "sh", "-c", handWritten, systemd.DropInPath(service))
	}
	r.worker.MustRun(t, "sh", "-c", "systemctl daemon-reload && systemctl restart containerd kubelet")
	before := map[string]string{}
	for _, n := range r.nodes() {
		before[n.name] = n.MustRun(t, "sh", "-c", filesOfNode)
	}
	r.deliver(t, data)
	if message := r.failure(t); !strings.HasPrefix(message, "capi-proxy-patcher: "+systemd.DropInPath("containerd")+" on this node has no line") {
		t.Errorf("says %s", message)
	}
	if diff := cmp.Diff(before[r.worker.name], r.worker.MustRun(t, "sh", "-c", filesOfNode)); diff != "" {
		t.Errorf("files of the worker (-want +got):\n%s", diff)
	}
	r.options.ReplaceFiles = true
	r.deliver(t, data)
	r.rolledOut(t)
	r.haveFiles(t, data)
	for _, n := range r.nodes() {
		for path, want := range booted[n.name] {
			if got := n.ReadFile(t, path); got != want {
				t.Errorf("%s of %s is not as bootstrap has written it", path, n.name)
			}
		}
		if out, err := n.Run("cripull", pauseImage); err != nil {
			t.Errorf("%s does not pull: %s %v", n.name, out, err)
		}
		for _, unit := range []string{"containerd", "kubelet"} {
			if env := n.Environ(t, unit); !strings.Contains(env["HTTPS_PROXY"], "New2") ||
				!slices.Contains(strings.Split(env["NO_PROXY"], ","), n.address) {
				t.Errorf("%s of %s has other variables", unit, n.name)
			}
		}
		r.restartedOnce(t, stepAdopt, n)
	}
	if mode := strings.TrimSpace(r.worker.MustRun(t, "stat", "--format=%a %U", replacedFolder)); mode != "700 root" {
		t.Errorf("%s is %s", replacedFolder, mode)
	}

	r.report.Step(t, stepReturn)
	r.restore(t, stepReturn)
	for _, n := range r.nodes() {
		if diff := cmp.Diff(before[n.name], n.MustRun(t, "sh", "-c", filesOfNode)); diff != "" {
			t.Errorf("files of %s (-want +got):\n%s", n.name, diff)
		}
	}
	if env := r.worker.Environ(t, "containerd"); env["HTTPS_PROXY"] != "http://mine:1" {
		t.Errorf("containerd of the worker has HTTPS_PROXY %q", env["HTTPS_PROXY"])
	}
}

// restore has both nodes lose the files, as the manager does when the label of the Cluster is removed.
func (r *running) restore(t *testing.T, step string) {
	t.Helper()
	in, err := workload.NodePods{Image: registryHost + "/capi-proxy-patcher:v1"}.Restore(clusterName)
	if err != nil {
		t.Fatal(err)
	}
	r.applyVersion(t, in)
	r.rolledOut(t)
	for _, n := range r.nodes() {
		r.restartedOnce(t, step, n)
	}
}

// restartedOnce checks that the apply of a node has restarted services once, and no Pod.
func (r *running) restartedOnce(t *testing.T, step string, n node) {
	t.Helper()
	if log := r.log(t, n); strings.Count(log, "restarting containerd and kubelet") != 1 || strings.Count(log, "restarting") != 1 {
		t.Errorf("not one restart on %s: %s", n.name, log)
	}
	r.stillCounts(t, n)
	r.saw(t, step, n)
}

// lacksProduct checks that nothing of the product is on a node.
func (r *running) lacksProduct(t *testing.T, n node) {
	t.Helper()
	left := n.MustRun(t, "find", "/etc", "/usr/local/share", "-path", "*capi-proxy-patcher*", "-o", "-name", "http-proxy.conf")
	if left != "" {
		t.Errorf("%s has %s", n.name, left)
	}
	certificate := strings.Split(string(r.authority.PEM), "\n")[1]
	if _, err := n.Run("grep", "--fixed-strings", "--quiet", certificate, "/etc/ssl/certs/ca-certificates.crt"); err == nil {
		t.Errorf("%s trusts the certificate", n.name)
	}
	for _, unit := range []string{"containerd", "kubelet"} {
		if env := vocabulary.ProxyVariables(n.Environ(t, unit)); len(env) > 0 {
			t.Errorf("%s of %s has variables", unit, n.name)
		}
	}
}
