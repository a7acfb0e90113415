package slim

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// reference is a reference to an object. Few objects have the same name in one.
type reference struct {
	of   shared[kind]
	name string
}

type kind struct{ group, name string }

func (m *metadata) reference(whole clusterv1.ContractVersionedObjectReference) reference {
	return reference{sharedOf(kind{whole.APIGroup, whole.Kind}), m.own(whole.Name)}
}

func (r *reference) whole() clusterv1.ContractVersionedObjectReference {
	of := r.of.value()
	return clusterv1.ContractVersionedObjectReference{APIGroup: of.group, Kind: of.name, Name: r.name}
}

// machine is what is read of the Machines of a pool.
type machine struct {
	cluster                string
	version                shared[string]
	config, infrastructure reference
}

func (m *metadata) machineOf(whole *clusterv1.MachineSpec) machine {
	return machine{
		cluster: m.own(whole.ClusterName), version: sharedOf(whole.Version),
		config: m.reference(whole.Bootstrap.ConfigRef), infrastructure: m.reference(whole.InfrastructureRef),
	}
}

func (m *machine) whole() clusterv1.MachineSpec {
	return clusterv1.MachineSpec{
		ClusterName: m.cluster, Version: m.version.value(), InfrastructureRef: m.infrastructure.whole(),
		Bootstrap: clusterv1.Bootstrap{ConfigRef: m.config.whole()},
	}
}

// condition is a condition. Many objects say the same in it.
type condition struct {
	said       shared[said]
	generation int64
	since      metav1.Time
}

type said struct {
	kind            string
	status          metav1.ConditionStatus
	reason, message string
}

// conditionsOf returns those of some types.
func conditionsOf(all []metav1.Condition, types ...string) []condition {
	return each(conditions(all, types...), func(c metav1.Condition) condition {
		return condition{
			sharedOf(said{c.Type, c.Status, c.Reason, c.Message}), c.ObservedGeneration, c.LastTransitionTime,
		}
	})
}

func (c condition) whole() metav1.Condition {
	of := c.said.value()
	return metav1.Condition{
		Type: of.kind, Status: of.status, Reason: of.reason, Message: of.message,
		ObservedGeneration: c.generation, LastTransitionTime: c.since,
	}
}

// conditions returns those of some types.
func conditions(all []metav1.Condition, types ...string) []metav1.Condition {
	var kept []metav1.Condition
	for _, kind := range types {
		if condition := meta.FindStatusCondition(all, kind); condition != nil {
			kept = append(kept, *condition)
		}
	}
	return kept
}

// topology returns a topology without the values of the variables of others; nil if there is none.
func topology(whole *clusterv1.Topology) *clusterv1.Topology {
	if !whole.IsDefined() {
		return nil
	}
	kept := whole.DeepCopy()
	lists := [][]clusterv1.ClusterVariable{kept.Variables, kept.ControlPlane.Variables.Overrides}
	for i := range kept.Workers.MachineDeployments {
		lists = append(lists, kept.Workers.MachineDeployments[i].Variables.Overrides)
	}
	for i := range kept.Workers.MachinePools {
		lists = append(lists, kept.Workers.MachinePools[i].Variables.Overrides)
	}
	for _, list := range lists {
		for i := range list {
			if list[i].Name != contract.VariableName {
				list[i].Value.Raw = nil
			}
		}
	}
	return kept
}
