package clusters

import (
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// CheckMetadata returns a rejection for each label and annotation of an object of Cluster API whose value is not a
// string, and for those of ours in any object. An API server rejects them; here they would be ignored.
func CheckMetadata(o *manifest.Object) finding.Errors {
	group, _, _ := strings.Cut(o.APIVersion(), "/")
	clusterAPI := group == GroupCluster || strings.HasSuffix(group, "."+GroupCluster)
	var found finding.Errors
	for _, field := range []string{"labels", "annotations"} {
		entries := Dig(o.Value(), "metadata", field)
		for _, key := range sortedKeys(entries) {
			_, isString := entries[key].(string)
			if isString || entries[key] == nil || !clusterAPI && !strings.HasPrefix(key, contract.Domain+"/") {
				continue
			}
			found = append(found, finding.Rejection(settings.CodeBadMetadata, finding.Field("metadata", field, key),
				"the value is not a string", "put it in quotes"))
		}
	}
	return found
}

// CheckNames warns of labels and annotations of a Cluster, a pool or a bootstrap object that carry the domain of the
// product and that nothing reads.
func (x Index) CheckNames(o *manifest.Object) []finding.Finding {
	switch x.forms[o].(type) {
	case *controlplanev1.KubeadmControlPlane, *bootstrapv1.KubeadmConfigTemplate, *bootstrapv1.KubeadmConfig:
		return settings.CheckBootstrap(o.Annotations())
	case *clusterv1.Cluster:
		return settings.CheckNames(o.Labels(), settings.SourceOf(x.cluster(o)))
	case *clusterv1.MachineDeployment, *clusterv1.MachinePool:
		if IsPool(o) && !plan.IsTopologyOwned(o.Labels()) {
			return settings.CheckPool(o.Annotations())
		}
	}
	return nil
}

// IsVariableLabel reports whether the value of contract.LabelEnabled is an unresolved variable of clusterctl.
func IsVariableLabel(o *manifest.Object) bool {
	return strings.Contains(o.Labels()[contract.LabelEnabled], "${")
}
