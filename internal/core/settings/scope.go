package settings

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Scope selects the Clusters that a manager serves. All others belong to other managers: it writes nothing of theirs.
// Its zero value is all Clusters.
type Scope struct {
	// Namespace is the only namespace; empty means all.
	Namespace string
	// WatchFilter is the value of Cluster API's label cluster.x-k8s.io/watch-filter that Clusters have to have; empty
	// means any, and none.
	WatchFilter string
}

// HasNamespace reports whether any Cluster of a namespace can be in the scope.
func (s Scope) HasNamespace(namespace string) bool {
	return s.Namespace == "" || s.Namespace == namespace
}

// Has reports whether a Cluster with these labels is in the scope.
func (s Scope) Has(namespace string, labels map[string]string) bool {
	return s.HasNamespace(namespace) && (s.WatchFilter == "" || labels[clusterv1.WatchLabel] == s.WatchFilter)
}
