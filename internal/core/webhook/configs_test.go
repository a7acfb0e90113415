package webhook_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// TestAdmission_OfKubeadmConfigs has KubeadmConfig md of a Machine, which Cluster API writes, and of a MachinePool,
// which users write.
func TestAdmission_OfKubeadmConfigs(t *testing.T) {
	t.Parallel()
	const (
		ofMachine = `"labels":{"cluster.x-k8s.io/cluster-name":"one"},"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","name":"m","uid":"1"}]`
		ofPool    = `"labels":{}`
		hasData   = `,"status":{"dataSecretName":"md"}`
	)
	for name, test := range map[string]struct {
		metadata, status string
		update           bool
		rollout          string
		patched, read    bool
		warning          string
	}{
		"of a Machine that is created":              {metadata: ofMachine, patched: true, read: true},
		"of a Machine that Cluster API works on":    {metadata: ofMachine, update: true},
		"of a MachinePool that is created":          {metadata: ofPool, patched: true, read: true},
		"of a MachinePool without data":             {metadata: ofPool, update: true, patched: true, read: true},
		"of a MachinePool whose Machines have data": {metadata: ofPool, update: true, status: hasData, read: true},
		"of a Cluster whose annotation is wrong":    {metadata: ofPool, rollout: "never", read: true, warning: contract.AnnotationRollout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := clusterNamed("one", true)
			if test.rollout != "" {
				cluster.Annotations = map[string]string{contract.AnnotationRollout: test.rollout}
			}
			pool := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "md"}}
			pool.Spec.ClusterName = "one"
			pool.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: plan.KindConfig, Name: "md",
			}
			cached, live := newWorld(t, cluster, pool), newWorld(t)
			object := `{"metadata":{"namespace":"ns","name":"md",` + test.metadata + `},"spec":{}` + test.status + `}`
			stored := ""
			if test.update {
				stored = object
			}
			got := ask(t, cached, live, plan.KindConfig, "md", stored, object)
			if patched := strings.Contains(string(got.Patch), contract.PathProxyEnv); patched != test.patched {
				t.Errorf("patched %t, want %t: %s", patched, test.patched, got.Patch)
			}
			if read := cached.reads+live.reads > 0; read != test.read {
				t.Errorf("%d reads of the cache, %d of the API server", cached.reads, live.reads)
			}
			if warnings := strings.Join(got.Warnings, "\n"); (warnings != "") != (test.warning != "") || !strings.Contains(warnings, test.warning) {
				t.Errorf("warnings %q, want %q", warnings, test.warning)
			}
		})
	}
}
