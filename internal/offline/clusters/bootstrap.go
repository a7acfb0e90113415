package clusters

import (
	"cmp"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// KubeadmControlPlane returns the KubeadmControlPlane of a Cluster without a topology, or nil.
func (x Index) KubeadmControlPlane(cluster *manifest.Object) *manifest.Object {
	spec := x.cluster(cluster).Spec
	if spec.Topology.IsDefined() || spec.ControlPlaneRef.Kind != plan.KindControlPlane {
		return nil
	}
	return x.Lookup(cluster.Namespace(), GroupControlPlane, plan.KindControlPlane, spec.ControlPlaneRef.Name)
}

// Bootstrap returns the bootstrap object of a worker, nil if there is none that can be patched.
func (x Index) Bootstrap(worker *manifest.Object) *manifest.Object {
	pool := x.Pool(worker)
	reference := pool.Bootstrap
	if reference.Kind != pool.BootstrapKind() || IsControlPlane(worker) {
		return nil
	}
	return x.Lookup(x.NamespaceOf(worker), GroupBootstrap, reference.Kind, reference.Name)
}

// NamespaceOf returns the namespace of a worker, which is that of its Cluster if it has none in the manifests.
func (x Index) NamespaceOf(worker *manifest.Object) string {
	if own, _ := x.NamedBy(worker); own != nil {
		return cmp.Or(worker.Namespace(), own.Namespace())
	}
	return worker.Namespace()
}

// IsControlPlane reports whether a worker is a Machine of a control plane.
func IsControlPlane(worker *manifest.Object) bool {
	_, controlPlane := worker.Labels()[clusterv1.MachineControlPlaneLabel]
	return controlPlane
}

// Use is a use of a bootstrap object.
type Use struct {
	Object *manifest.Object
	// Override is the proxy Secret that its pool names, "" for that of the Cluster.
	Override string
}

// Uses returns the uses of bootstrap objects by a Cluster, without those of pools that its topology owns.
func (x Index) Uses(cluster *manifest.Object) (uses []Use) {
	if o := x.KubeadmControlPlane(cluster); o != nil {
		uses = append(uses, Use{Object: o})
	}
	for _, worker := range x.Workers(cluster) {
		if o := x.Bootstrap(worker); o != nil && !plan.IsTopologyOwned(worker.Labels()) {
			uses = append(uses, Use{o, x.Pool(worker).Override})
		}
	}
	return uses
}
