package clusters

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// newForm returns an empty object of the kind of o, nil if decisions do not read it.
func newForm(o *manifest.Object) metav1.Object {
	group, _, _ := strings.Cut(o.APIVersion(), "/")
	switch o.Kind() + "." + group {
	case "Cluster." + GroupCluster:
		return &clusterv1.Cluster{}
	case settings.KindMachineDeployment + "." + GroupCluster, plan.KindMachineSet + "." + GroupCluster:
		return &clusterv1.MachineDeployment{} // the fields that are read are the same
	case settings.KindMachinePool + "." + GroupCluster:
		return &clusterv1.MachinePool{}
	case plan.KindMachine + "." + GroupCluster:
		return &clusterv1.Machine{}
	case plan.KindControlPlane + "." + GroupControlPlane, plan.KindTemplate + "." + GroupBootstrap,
		plan.KindConfig + "." + GroupBootstrap:
		return kinds.NewBootstrapObject(o.Kind())
	}
	return nil
}

// decode returns an object in the form that decisions read, v1beta1 or v1beta2, nil for other kinds. Fields that hold
// another type are ignored, because an API server rejects them. Fields with an unresolved variable of clusterctl are
// omitted and named where decisions read them.
func decode(o *manifest.Object) (metav1.Object, []finding.Place) {
	form := newForm(o)
	if form == nil {
		return nil, nil
	}
	value := o.Value()
	delete(Dig(value, "spec"), "rollout") // a manifest has no Machines that it replaces
	if o.Kind() != plan.KindMachine {
		delete(value, "status")
	}
	cluster, isCluster := form.(*clusterv1.Cluster)
	var unresolved []finding.Place
	if isCluster {
		unresolved = removeVariables(value)
	}
	if text, err := json.Marshal(value); err == nil {
		_ = kinds.Decode(text, form) // it fills in the other fields
	}
	form.SetNamespace(o.Namespace())
	form.SetName(o.Name())
	form.SetLabels(o.Labels())
	form.SetAnnotations(o.Annotations())
	if isCluster {
		unresolved = append(unresolved, removeValues(&cluster.Spec.Topology)...)
	}
	if spec := kinds.SpecOf(form); spec != nil && strings.Contains(string(spec.Format), "${") {
		spec.Format = ""
	}
	return form, unresolved
}

// removeVariables removes and names the fields of the network of a Cluster that have an unresolved variable.
func removeVariables(cluster map[string]any) (unresolved []finding.Place) {
	unset := func(value any, at finding.Place) bool {
		text, _ := value.(string)
		if strings.Contains(text, "${") {
			unresolved = append(unresolved, at)
			return true
		}
		return text == ""
	}
	for _, path := range [][]string{
		{"spec", "clusterNetwork", "pods", "cidrBlocks"},
		{"spec", "clusterNetwork", "services", "cidrBlocks"},
		{"spec", "clusterNetwork", "serviceDomain"},
		{"spec", "controlPlaneEndpoint", "host"},
	} {
		last, at := len(path)-1, finding.Field(path...)
		parent := Dig(cluster, path[:last]...)
		list, isList := parent[path[last]].([]any)
		switch {
		case isList:
			kept := []any{}
			for i, item := range list {
				if !unset(item, at.Index(i)) {
					kept = append(kept, item)
				}
			}
			parent[path[last]] = kept
		case unset(parent[path[last]], at):
			delete(parent, path[last])
		}
	}
	return unresolved
}

// removeValues removes and names the values of the product's variable that have an unresolved variable.
func removeValues(topology *clusterv1.Topology) (unresolved []finding.Place) {
	if !topology.IsDefined() {
		return nil
	}
	remove := func(variables []clusterv1.ClusterVariable, at finding.Place) {
		for i := range variables {
			if v := &variables[i]; v.Name == contract.VariableName && strings.Contains(string(v.Value.Raw), "${") {
				v.Value.Raw = nil
				unresolved = append(unresolved, at.Item(v.Name))
			}
		}
	}
	at := finding.Field("spec", "topology")
	remove(topology.Variables, at.Child("variables"))
	remove(topology.ControlPlane.Variables.Overrides, at.Child("controlPlane", "variables", "overrides"))
	pool := func(list, name string, overrides []clusterv1.ClusterVariable) {
		remove(overrides, at.Child("workers", list).Item(name).Child("variables", "overrides"))
	}
	for i := range topology.Workers.MachineDeployments {
		p := &topology.Workers.MachineDeployments[i]
		pool("machineDeployments", p.Name, p.Variables.Overrides)
	}
	for i := range topology.Workers.MachinePools {
		p := &topology.Workers.MachinePools[i]
		pool("machinePools", p.Name, p.Variables.Overrides)
	}
	return unresolved
}

// Form returns an object in the form that decisions read, nil for a kind that they do not read. Nobody changes it.
func (x Index) Form(o *manifest.Object) metav1.Object { return x.forms[o] }

// cluster returns the form of a Cluster.
func (x Index) cluster(o *manifest.Object) *clusterv1.Cluster {
	cluster, _ := x.forms[o].(*clusterv1.Cluster)
	return cluster
}

// BootstrapOf returns the form of a bootstrap object, nil if o is none.
func (x Index) BootstrapOf(o *manifest.Object) kinds.BootstrapObject {
	if spec := kinds.SpecOf(x.forms[o]); spec == nil {
		return nil
	}
	object, _ := x.forms[o].(kinds.BootstrapObject)
	return object
}

// Pool returns a worker in the form of a pool. Only a pool names its own proxy Secret.
func (x Index) Pool(worker *manifest.Object) plan.Pool {
	form := x.forms[worker]
	if machine, ok := form.(*clusterv1.Machine); ok {
		form = &clusterv1.MachineDeployment{ObjectMeta: machine.ObjectMeta, Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: machine.Spec.ClusterName, Template: clusterv1.MachineTemplateSpec{Spec: machine.Spec},
		}}
	}
	pool := plan.PoolOf(form)
	if !IsPool(worker) {
		pool.Pool = settings.Pool{Kind: worker.Kind(), Name: worker.Name()}
	}
	return pool
}
