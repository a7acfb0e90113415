package clusters

import (
	"cmp"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// KubeadmControlPlane returns the KubeadmControlPlane of a Cluster without a topology, or nil.
func (x Index) KubeadmControlPlane(cluster *manifest.Object) *manifest.Object {
	spec := x.cluster(cluster).Spec
	if spec.Topology != nil || spec.ControlPlaneRef.Kind != plan.KindControlPlane {
		return nil
	}
	return x.Lookup(cluster.Namespace(), GroupControlPlane, plan.KindControlPlane, spec.ControlPlaneRef.Name)
}

// Bootstrap returns the bootstrap object of a worker, nil if there is none that can be patched.
func (x Index) Bootstrap(worker *manifest.Object) *manifest.Object {
	reference := x.Pool(worker).Bootstrap
	if reference.Kind != BootstrapKind(worker) || IsControlPlane(worker) {
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

// SpecPath returns where the bootstrap spec is in an object.
func SpecPath(object kinds.BootstrapObject) []string {
	parents := object.Location().Parents
	return strings.Split(parents[len(parents)-1], "/")[1:]
}
