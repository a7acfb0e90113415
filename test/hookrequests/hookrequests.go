// Package hookrequests builds the requests that Cluster API v1.14 sends to runtime hooks for the topology of a Cluster:
// three templates of the Cluster, two of each pool, and the builtin variables. For tests and measurements.
package hookrequests

import (
	"cmp"
	_ "embed" // templates.yaml
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

//go:embed templates.yaml
var templates []byte

// Version is the Kubernetes version of everything in a request.
const Version = "v1.36.3"

// Options choose a request. The zero value is of a labelled Cluster without pools that says nothing.
type Options struct {
	// Cluster is the number of the Cluster. It changes names and nothing else of weight.
	Cluster int
	// Pools is the number of MachineDeployments, MachinePools that of MachinePools.
	Pools, MachinePools int
	// Distinct gives every control plane and pool a file and a command of its own, so that no two templates are alike,
	// not even those of different Clusters.
	Distinct bool
	// Unlabelled leaves the label of the Cluster out.
	Unlabelled bool
	// Label is the value of the label if it is to be another one.
	Label string
	// Annotations of the Cluster.
	Annotations map[string]string
	// Variable is the value of the Cluster's variable in JSON.
	Variable string
	// Overrides are values of the variable for pools, by number; EverySecond is one for every second pool.
	Overrides   map[int]string
	EverySecond string
	// PoolAnnotations are annotations of pools, by number.
	PoolAnnotations map[int]map[string]string
}

// Generate returns a request for GeneratePatches.
func Generate(o Options) (*runtimehooksv1.GeneratePatchesRequest, error) {
	var parts map[string]map[string]any
	if err := yaml.Unmarshal(templates, &parts); err != nil {
		return nil, fmt.Errorf("reading templates: %w", err)
	}
	b := builder{parts: parts, name: fmt.Sprintf("cluster-%04d", o.Cluster)}
	q := &runtimehooksv1.GeneratePatchesRequest{}
	q.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("GeneratePatchesRequest"))
	labels := map[string]string{"env": "prod"}
	if !o.Unlabelled {
		labels[contract.LabelEnabled] = cmp.Or(o.Label, contract.LabelEnabledValue)
	}
	annotations := map[string]string{"example.com/ticket": "OPS-1234"}
	maps.Copy(annotations, o.Annotations)
	if o.Variable != "" {
		q.Variables = append(q.Variables, own(o.Variable))
	}
	q.Variables = append(q.Variables, b.builtin(runtimehooksv1.Builtins{Cluster: &runtimehooksv1.ClusterBuiltins{
		Name: b.name, Namespace: "team-a", UID: b.uid(),
		Metadata: &runtimehooksv1.ObjectMeta{Labels: labels, Annotations: annotations},
		Topology: &runtimehooksv1.ClusterTopologyBuiltins{
			Version:  Version,
			ClassRef: runtimehooksv1.ClusterTopologyClusterClassRefBuiltins{Name: "standard", Namespace: "team-a"},
		},
		Network: &runtimehooksv1.ClusterNetworkBuiltins{
			ServiceDomain: new("cluster.local"),
			Services:      []string{"10.128.0.0/12"}, Pods: []string{"192.168.0.0/16"},
		},
	}}))
	plane := b.name + "-x7k2p"
	controlPlane := b.builtin(runtimehooksv1.Builtins{ControlPlane: &runtimehooksv1.ControlPlaneBuiltins{
		Version: Version, Name: plane, Replicas: new(int32(3)),
		Metadata: &runtimehooksv1.ObjectMeta{Labels: map[string]string{
			"cluster.x-k8s.io/cluster-name":   b.name,
			"topology.cluster.x-k8s.io/owned": "",
		}},
		MachineTemplate: &runtimehooksv1.ControlPlaneMachineTemplateBuiltins{
			InfrastructureRef: runtimehooksv1.ControlPlaneMachineTemplateInfrastructureRefBuiltins{Name: plane},
		},
	}})
	add := func(part, kind, name, field string, variables ...runtimehooksv1.Variable) {
		q.Items = append(q.Items, runtimehooksv1.GeneratePatchesRequestItem{
			UID: b.uid(),
			HolderReference: runtimehooksv1.HolderReference{
				APIVersion: "cluster.x-k8s.io/v1beta2", Kind: kind,
				Namespace: "team-a", Name: name, FieldPath: field,
			},
			Object: runtime.RawExtension{Raw: b.json(b.parts[part])}, Variables: variables,
		})
	}
	if o.Distinct {
		b.distinguish("controlPlane", b.name, "spec", "template", "spec", "kubeadmConfigSpec")
	}
	add("cluster", "Cluster", b.name, "spec.infrastructureRef")
	add("controlPlane", "Cluster", b.name, "spec.controlPlaneRef", controlPlane)
	add("machine", "KubeadmControlPlane", plane, "spec.machineTemplate.spec.infrastructureRef", controlPlane)
	for i := range o.Pools + o.MachinePools {
		kind, variables := b.pool(o, i)
		name := fmt.Sprintf("%s-pool-%03d-q9w8e", b.name, i)
		if o.Distinct {
			b.distinguish("worker", name, "spec", "template", "spec")
		}
		add("worker", kind, name, "spec.template.spec.bootstrap.configRef", variables...)
		add("machine", kind, name, "spec.template.spec.infrastructureRef", variables...)
	}
	return q, b.err
}

// Validate returns the request for ValidateTopology that belongs to one for GeneratePatches.
func Validate(q *runtimehooksv1.GeneratePatchesRequest) *runtimehooksv1.ValidateTopologyRequest {
	v := &runtimehooksv1.ValidateTopologyRequest{Variables: q.Variables}
	v.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("ValidateTopologyRequest"))
	for i := range q.Items {
		item := &q.Items[i]
		v.Items = append(v.Items, &runtimehooksv1.ValidateTopologyRequestItem{
			HolderReference: item.HolderReference,
			Object:          item.Object, Variables: item.Variables,
		})
	}
	return v
}

// builder makes the parts of one request.
type builder struct {
	parts map[string]map[string]any
	name  string
	uids  int
	err   error
}

func (b *builder) uid() types.UID {
	b.uids++
	return types.UID(fmt.Sprintf("9f0c7d1e-5a4b-4c3d-8e2f-%012d", b.uids))
}

func (b *builder) json(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("writing a template: %w", err)
	}
	return text
}

func (b *builder) builtin(value runtimehooksv1.Builtins) runtimehooksv1.Variable {
	return runtimehooksv1.Variable{Name: runtimehooksv1.BuiltinsName, Value: apiextensionsv1.JSON{Raw: b.json(value)}}
}

func own(value string) runtimehooksv1.Variable {
	return runtimehooksv1.Variable{Name: contract.VariableName, Value: apiextensionsv1.JSON{Raw: []byte(value)}}
}

// pool returns the kind of pool i and the variables of its templates.
func (b *builder) pool(o Options, i int) (string, []runtimehooksv1.Variable) {
	var variables []runtimehooksv1.Variable
	if override, found := o.Overrides[i]; found {
		variables = append(variables, own(override))
	} else if o.EverySecond != "" && i%2 == 1 {
		variables = append(variables, own(o.EverySecond))
	}
	name := fmt.Sprintf("pool-%03d", i)
	meta := &runtimehooksv1.ObjectMeta{
		Labels: map[string]string{
			"cluster.x-k8s.io/cluster-name":             b.name,
			"topology.cluster.x-k8s.io/deployment-name": name,
		},
		Annotations: o.PoolAnnotations[i],
	}
	object := name + "-q9w8e"
	bootstrap := &runtimehooksv1.MachineBootstrapBuiltins{
		ConfigRef: &runtimehooksv1.MachineBootstrapConfigRefBuiltins{Name: object},
	}
	infrastructure := &runtimehooksv1.MachineInfrastructureRefBuiltins{Name: object}
	if i >= o.Pools {
		return "MachinePool",
			append(variables, b.builtin(runtimehooksv1.Builtins{MachinePool: &runtimehooksv1.MachinePoolBuiltins{
				Version: Version, Class: "standard", Name: object, TopologyName: name, Replicas: new(int64(3)), Metadata: meta,
				Bootstrap: bootstrap, InfrastructureRef: infrastructure,
			}}))
	}
	return "MachineDeployment",
		append(variables, b.builtin(runtimehooksv1.Builtins{MachineDeployment: &runtimehooksv1.MachineDeploymentBuiltins{
			Version: Version, Class: "standard", Name: object, TopologyName: name, Replicas: new(int64(3)), Metadata: meta,
			Bootstrap: bootstrap, InfrastructureRef: infrastructure,
		}}))
}

// distinguish gives the control plane or the next worker a file and a command that no other template has.
func (b *builder) distinguish(part, name string, path ...string) {
	files, _, errFiles := unstructured.NestedFieldNoCopy(b.parts[part], append(path, "files")...)
	commands, _, errCommands := unstructured.NestedFieldNoCopy(b.parts[part], append(path, "preKubeadmCommands")...)
	b.err = errors.Join(b.err, errFiles, errCommands)
	if files, ok := files.([]any); ok {
		if file, ok := files[0].(map[string]any); ok {
			file["content"] = fmt.Sprintf("name = %q\n", name)
		}
	}
	if commands, ok := commands.([]any); ok {
		commands[0] = "hostnamectl set-hostname " + name
	}
}
