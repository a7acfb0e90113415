//go:build node

package kubernetes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	stepRestore = "in place: the label goes, and the nodes have nothing of the product"
	stepAdopt   = "in place: nodes without the product get it, once drop-ins of somebody else are removed"
	stepReturn  = "in place: the label goes, and the nodes are as before"

	// filesOfNode prints every file below folders that the product or its commands write, with a digest.
	filesOfNode = `for folder in /etc /usr/local/share; do
	find $folder -printf '%p %y %m %u %g %l\n'
	find $folder -type f -exec sha256sum {} +
done | sort`
	// handWritten writes a drop-in with which kubelet reaches the API server, and containerd the registry of the image
	// that is pulled again.
	handWritten = `umask 027 && mkdir -p $(dirname $0) && printf '[Service]\nEnvironment=HTTPS_PROXY=http://mine:1 NO_PROXY=10.0.0.0/8,` + registryHost + `\n' >$0`
)

// adopt has the manager take the product from nodes that booted with it, bring it back to them once the worker has no
// drop-ins any more that were written by hand, and take it away again.
func (r *running) adopt(t *testing.T) {
	t.Helper()
	r.report.Step(t, stepRestore)
	booted := map[string]map[string]string{}
	for _, n := range r.nodes() {
		booted[n.name] = map[string]string{}
		for _, path := range patch.ManagedPaths() {
			booted[n.name][path] = n.ReadFile(t, path)
		}
	}
	r.restore(t)
	for _, n := range r.nodes() {
		r.lacksProduct(t, n)
	}

	r.report.Step(t, stepAdopt)
	before := map[string]string{}
	for _, n := range r.nodes() {
		before[n.name] = n.MustRun(t, "sh", "-c", filesOfNode)
	}
	for _, service := range []string{"containerd", "kubelet"} {
		r.worker.MustRun(t, "sh", "-c", handWritten, systemd.DropInPath(service))
	}
	r.worker.MustRun(t, "sh", "-c", "systemctl daemon-reload && systemctl restart containerd kubelet")
	withDropIns := r.worker.MustRun(t, "sh", "-c", filesOfNode)
	r.user(t, "", "label", "cluster", clusterName, contract.LabelEnabled+"="+contract.LabelEnabledValue)
	want := "node " + r.worker.host + ": " + contract.Name + ": " + systemd.DropInPath("containerd") + " on this node has no line"
	r.waitCondition(t, inplace.ReasonInPlaceFailed, want)
	if diff := cmp.Diff(withDropIns, r.worker.MustRun(t, "sh", "-c", filesOfNode)); diff != "" {
		t.Errorf("files of the worker (-want +got):\n%s", diff)
	}
	for _, service := range []string{"containerd", "kubelet"} {
		r.worker.MustRun(t, "rm", systemd.DropInPath(service))
	}
	r.waitApplied(t)
	r.haveFiles(t, r.generated(t))
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
			if env := n.Environ(t, unit); !strings.Contains(env["HTTPS_PROXY"], "New2") || unit == "kubelet" &&
				!slices.Contains(strings.Split(env["NO_PROXY"], ","), n.address) {
				t.Errorf("%s of %s has other variables", unit, n.name)
			}
		}
		if log := r.log(t, n); strings.Count(log, "restarting containerd and kubelet") != 1 || strings.Count(log, "restarting") != 1 {
			t.Errorf("not one restart on %s: %s", n.name, log)
		}
		r.stillCounts(t, n)
		r.saw(t, stepAdopt, n)
	}

	r.report.Step(t, stepReturn)
	r.restore(t)
	for _, n := range r.nodes() {
		if diff := cmp.Diff(before[n.name], n.MustRun(t, "sh", "-c", filesOfNode)); diff != "" {
			t.Errorf("files of %s (-want +got):\n%s", n.name, diff)
		}
	}
}

// restore removes the label of the Cluster, and waits until nothing of the product is in the workload cluster.
func (r *running) restore(t *testing.T) {
	t.Helper()
	r.user(t, "", "label", "cluster", clusterName, contract.LabelEnabled+"-")
	waitUntil(t, "the workload cluster to have nothing of the product", func() bool {
		return !strings.Contains(r.first.kubectl(t, "get", "daemonsets,secrets,leases,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings",
			"--namespace=kube-system", "-o", "name"), "/"+contract.Name)
	})
	if left := r.first.kubectl(t, "get", "nodes", "--selector", inplace.LabelNodeFiles, "-o", "name"); left != "" {
		t.Errorf("labelled are %s", left)
	}
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
