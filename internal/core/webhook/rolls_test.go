package webhook_test

import (
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// runningControlPlane is a KubeadmControlPlane with Machines and, if so, a drop-in of the user at a managed path.
func runningControlPlane(handWritten bool, replicas string) string {
	files := ""
	if handWritten {
		files = `{"path":"/etc/systemd/system/containerd.service.d/http-proxy.conf","content":"[Service]\nEnvironment=HTTP_PROXY=http://old:1\n"}`
	}
	return `{"metadata":{"namespace":"ns","name":"cp","uid":"u","labels":{"cluster.x-k8s.io/cluster-name":"one"}},"spec":{"replicas":` + replicas +
		`,"version":"v1.36.3","kubeadmConfigSpec":{"files":[` + files + `]}},"status":{"replicas":3}}`
}

// TestAdmission_DecidesAWriteThatRollsByTheLabelOfNow applies a Cluster and its control plane in one manifest: the
// cache does not have the label yet when the control plane's write rolls its Machines.
func TestAdmission_DecidesAWriteThatRollsByTheLabelOfNow(t *testing.T) {
	t.Parallel()
	before := clusterNamed("one", false)
	before.Status.Conditions = nil
	for name, test := range map[string]struct {
		cached, live      *clusterv1.Cluster
		stored, requested string
		want, asks        bool
	}{
		"the label was set a moment ago":     {before, clusterNamed("one", true), runningControlPlane(true, "3"), runningControlPlane(false, "3"), true, true},
		"the label was removed a moment ago": {clusterNamed("one", true), before, runningControlPlane(false, "3"), runningControlPlane(true, "3"), false, true},
		"the write does not roll":            {before, clusterNamed("one", true), runningControlPlane(true, "3"), runningControlPlane(true, "5"), false, false},
		"the API server does not have it":    {clusterNamed("one", true), nil, runningControlPlane(true, "3"), runningControlPlane(false, "3"), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := newWorld(t)
			if test.live != nil {
				live.Add(test.live)
			}
			got := ask(t, newWorld(t, test.cached), live, plan.KindControlPlane, "cp", test.stored, test.requested)
			written := after(t, test.requested, got)
			if patched := strings.Contains(written, contract.PathProxyEnv); patched != test.want || len(got.Warnings) > 0 {
				t.Errorf("patched %t, want %t, warnings %q: %s", patched, test.want, got.Warnings, written)
			}
			if test.want && strings.Contains(written, "http://old:1") {
				t.Errorf("the user's file is back: %s", written)
			}
			if requested := live.clusters > 0; requested != test.asks {
				t.Errorf("requested the API server for the Cluster: %t, want %t", requested, test.asks)
			}
		})
	}
}
