package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Trim removes values from an object before a cache keeps it: contents of files that decisions do not compare, values
// of other variables, conditions of others, and metadata that is never read. It has the form of a
// transform of a cache.
func Trim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		trimMetadata(o)
	}
	switch o := object.(type) {
	case *Cluster:
		o.Status.Conditions = conditions(o.Status.Conditions, contract.ConditionProxyConfigured,
			contract.ConditionProxyPublished, clusterv1.ClusterTopologyReconciledCondition)
		o.Spec.Topology.trim()
	case *KubeadmControlPlane:
		o.Status.Conditions = conditions(o.Status.Conditions, append(rollConditions(), clusterv1.PausedCondition)...)
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].Message = ""
		}
		o.Bootstrap().trim()
	case *KubeadmConfigTemplate:
		o.Bootstrap().trim()
	case *KubeadmConfig:
		o.Status.Conditions = conditions(o.Status.Conditions, bootstrapv1.KubeadmConfigDataSecretAvailableCondition)
		o.Bootstrap().trim()
	}
	return object, nil
}

func trimMetadata(o metav1.Object) {
	o.SetManagedFields(nil)
	// An empty map stays one: a patch that adds the first value must not replace it.
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
}

func (t *Topology) trim() {
	if t == nil {
		return
	}
	lists := [][]Variable{t.Variables}
	if t.ControlPlane != nil {
		lists = append(lists, t.ControlPlane.Variables.Overrides)
	}
	for i := range t.Workers.MachineDeployments {
		lists = append(lists, t.Workers.MachineDeployments[i].Variables.Overrides)
	}
	for i := range t.Workers.MachinePools {
		lists = append(lists, t.Workers.MachinePools[i].Variables.Overrides)
	}
	for _, list := range lists {
		for i := range list {
			if list[i].Name != contract.VariableName {
				list[i].Value = nil
			}
		}
	}
}

func (b *Bootstrap) trim() {
	if b == nil {
		return
	}
	for i := range b.Files {
		f := &b.Files[i]
		if !patch.IsManagedFile(*f) && !patch.ReadsContent(*f) {
			f.Dropped, f.Content = patch.FileSize(b.Format, *f), ""
		}
	}
}

// conditions returns those of some types.
func conditions(all []metav1.Condition, types ...string) []metav1.Condition {
	return slices.DeleteFunc(all, func(c metav1.Condition) bool { return !slices.Contains(types, c.Type) })
}
