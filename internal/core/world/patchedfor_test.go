package world

import (
	"encoding/json"
	"slices"
	"testing"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

func TestPatchedFor_KnowsTheClusterWithoutTheSecret(t *testing.T) {
	t.Parallel()
	var template bootstrapv1.KubeadmConfigTemplate
	if err := json.Unmarshal([]byte(`{"spec":{"template":{"spec":{"files":[{"path":"`+contract.PathProxyEnv+
		`","contentFrom":{"secret":{"name":"prod.md.md.proxy-files","key":"`+contract.KeyProxyEnv+`"}}}]}}}}`),
		&template); err != nil {
		t.Fatal(err)
	}
	if got := PatchedFor(&template); !slices.Contains(got, "prod") {
		t.Errorf("found by %v", got)
	}
}
