package settings

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// SecretCandidates returns the names under which the proxy Secret of a Cluster is looked up in the Cluster's namespace,
// the first one first. override is the value of the pool's annotation, or "".
func SecretCandidates(cluster Cluster, override string) []types.NamespacedName {
	in := func(names ...string) []types.NamespacedName {
		candidates := make([]types.NamespacedName, len(names))
		for i, name := range names {
			candidates[i] = types.NamespacedName{Namespace: cluster.Namespace, Name: name}
		}
		return candidates
	}
	if override != "" {
		return in(override)
	}
	if name := cluster.Annotations[contract.AnnotationSecret]; name != "" {
		return in(name)
	}
	return in(cluster.Name+contract.ClusterSecretSuffix, contract.DefaultSecretName)
}
