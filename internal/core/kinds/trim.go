package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Trim removes values from an object before a cache keeps it: contents of files that no rule reads, values of other
// variables, conditions of others, and metadata that is never read. It has the form of a transform of a cache.
func Trim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		trimMetadata(o)
	}
	switch o := object.(type) {
	case *clusterv1.Cluster:
		o.Status.Conditions = conditions(o.Status.Conditions,
			append(contract.Conditions(), clusterv1.ClusterTopologyReconciledCondition)...)
		trimTopology(&o.Spec.Topology)
	case *controlplanev1.KubeadmControlPlane:
		o.Status.Conditions = conditions(o.Status.Conditions, clusterv1.PausedCondition)
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].Message = ""
		}
	case *bootstrapv1.KubeadmConfig:
		o.Status.Conditions = conditions(o.Status.Conditions, bootstrapv1.KubeadmConfigDataSecretAvailableCondition)
	}
	if spec := SpecOf(object); spec != nil {
		trimFiles(spec)
	}
	return object, nil
}

func trimMetadata(o metav1.Object) {
	o.SetManagedFields(nil)
	// An empty map stays one: a patch that adds the first value must not replace it.
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
}

func trimTopology(t *clusterv1.Topology) {
	trimVariables(t.Variables)
	trimVariables(t.ControlPlane.Variables.Overrides)
	for i := range t.Workers.MachineDeployments {
		trimVariables(t.Workers.MachineDeployments[i].Variables.Overrides)
	}
	for i := range t.Workers.MachinePools {
		trimVariables(t.Workers.MachinePools[i].Variables.Overrides)
	}
}

func trimVariables(list []clusterv1.ClusterVariable) {
	for i := range list {
		if list[i].Name != contract.VariableName {
			list[i].Value.Raw = nil
		}
	}
}

func trimFiles(spec *bootstrapv1.KubeadmConfigSpec) {
	read := new(walk).spec(spec)
	for i := range spec.Files {
		f := fileOf(&spec.Files[i])
		if !read[i] && !patch.ReadsContent(f) {
			spec.Files[i].Content = patch.Filler(string(spec.Format), f)
		}
	}
}

// conditions returns those of some types.
func conditions(all []metav1.Condition, types ...string) []metav1.Condition {
	return slices.DeleteFunc(all, func(c metav1.Condition) bool { return !slices.Contains(types, c.Type) })
}
