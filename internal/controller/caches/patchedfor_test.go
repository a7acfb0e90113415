package caches

import (
	"slices"
	"testing"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

func TestPatchedFor_KnowsTheClusterWithoutTheSecret(t *testing.T) {
	t.Parallel()
	template := &bootstrapv1.KubeadmConfigTemplate{}
	file := bootstrapv1.File{Path: contract.PathProxyEnv}
	file.ContentFrom.Secret.Name, file.ContentFrom.Secret.Key = "prod.md.md.proxy-files", contract.KeyProxyEnv
	template.Spec.Template.Spec.Files = []bootstrapv1.File{file}
	if got := PatchedFor(template); !slices.Contains(got, "prod") {
		t.Errorf("found by %v", got)
	}
}
