package clusters

import (
	"cmp"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// KubeadmControlPlane returns the KubeadmControlPlane of a Cluster without a topology, or nil.
func (x Index) KubeadmControlPlane(cluster *manifest.Object) *manifest.Object {
	reference := Dig(cluster.Value(), "spec", "controlPlaneRef")
	name, _ := reference["name"].(string)
	if Dig(cluster.Value(), "spec", "topology") != nil || reference["kind"] != plan.KindControlPlane {
		return nil
	}
	return x.Lookup(cluster.Namespace(), GroupControlPlane, plan.KindControlPlane, name)
}

// Bootstrap returns the bootstrap object of a worker, nil if there is none that can be patched.
func (x Index) Bootstrap(worker *manifest.Object) *manifest.Object {
	kind, name := BootstrapReference(worker)
	if kind != BootstrapKind(worker) || IsControlPlane(worker) {
		return nil
	}
	return x.Lookup(x.NamespaceOf(worker), GroupBootstrap, kind, name)
}

// BootstrapObjects returns the bootstrap objects of a Cluster that use a proxy Secret by the name in their pool, "" for
// that of the Cluster.
func (x Index) BootstrapObjects(cluster *manifest.Object, override string) (found []*manifest.Object) {
	if o := x.KubeadmControlPlane(cluster); o != nil && override == "" {
		found = append(found, o)
	}
	for _, worker := range x.Workers(cluster) {
		if Override(worker) != override || plan.IsTopologyOwned(worker.Labels()) {
			continue
		}
		if o := x.Bootstrap(worker); o != nil {
			found = append(found, o)
		}
	}
	return found
}

// NamespaceOf returns the namespace of a worker, which is that of its Cluster if it has none in the manifests.
func (x Index) NamespaceOf(worker *manifest.Object) string {
	if own, _ := x.NamedBy(worker); own != nil {
		return cmp.Or(worker.Namespace(), own.Namespace())
	}
	return worker.Namespace()
}

// BootstrapReference returns the kind and the name of the bootstrap object to which a worker refers.
func BootstrapReference(worker *manifest.Object) (kind, name string) {
	reference := Dig(worker.Value(), append(MachinePath(worker), "bootstrap", "configRef")...)
	kind, _ = reference["kind"].(string)
	name, _ = reference["name"].(string)
	return kind, name
}

// IsControlPlane reports whether a worker is a Machine of a control plane.
func IsControlPlane(worker *manifest.Object) bool {
	_, controlPlane := worker.Labels()[clusterv1.MachineControlPlaneLabel]
	return controlPlane
}

// SpecPath returns where the bootstrap spec of o is, if o is a bootstrap object.
func SpecPath(o *manifest.Object) (path []string, known bool) {
	group, _, _ := strings.Cut(o.APIVersion(), "/")
	switch {
	case o.Kind() == plan.KindControlPlane && group == GroupControlPlane:
		return []string{"spec", "kubeadmConfigSpec"}, true
	case o.Kind() == plan.KindTemplate && group == GroupBootstrap:
		return []string{"spec", "template", "spec"}, true
	case o.Kind() == plan.KindConfig && group == GroupBootstrap:
		return []string{"spec"}, true
	}
	return nil, false
}
