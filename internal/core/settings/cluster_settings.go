package settings

import (
	"maps"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Kinds of pools.
const (
	KindMachineDeployment = "MachineDeployment"
	KindMachinePool       = "MachinePool"
)

// Source has the settings of one Cluster as they are written in the Cluster, or in the request of a hook.
type Source struct {
	// Annotations of the Cluster.
	Annotations map[string]string
	// Variable is the value of the Cluster's variable in JSON, nil if it is not set.
	Variable []byte
	// ControlPlane is the value of the control plane's override, nil if there is none.
	ControlPlane []byte
	// Pools are the pools in the order of the findings.
	Pools []PoolSource
}

// PoolSource has the settings of one pool of its topology.
type PoolSource struct {
	// Kind is KindMachineDeployment or KindMachinePool.
	Kind string
	// Name is the name of the pool in spec.topology.
	Name string
	// Annotations of the pool's topology.
	Annotations map[string]string
	// Variable is the value of the pool's override, nil if there is none.
	Variable []byte
}

// ClusterSettings are the settings of one Cluster. Without a topology they have no pools.
type ClusterSettings struct {
	// Options are the options of the Cluster, its variable included.
	Options Options
	// SecretName is the proxy Secret that the Cluster names, or "".
	SecretName string
	// Pools are those of the Source, in its order.
	Pools []Pool
}

// ApplyTo returns cluster with the annotation that names the proxy Secret of s. It does not modify its argument.
func (s ClusterSettings) ApplyTo(cluster Cluster) Cluster {
	if s.SecretName == cluster.Annotations[contract.AnnotationSecret] {
		return cluster
	}
	annotations := maps.Clone(cluster.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[contract.AnnotationSecret] = s.SecretName
	cluster.Annotations = annotations
	return cluster
}

// Of reads the settings of a Cluster, see ReadSettings.
func Of(cluster *clusterv1.Cluster) (ClusterSettings, error) {
	return ReadSettings(SourceOf(cluster))
}

// SourceOf finds the annotations of a Cluster and, if it has one, the variables of its topology. Pools are in the order
// of spec.topology.workers, machineDeployments first.
func SourceOf(cluster *clusterv1.Cluster) Source {
	s, topology := Source{Annotations: cluster.Annotations}, cluster.Spec.Topology
	if !topology.IsDefined() {
		return s
	}
	s.Variable = valueOf(topology.Variables)
	s.ControlPlane = valueOf(topology.ControlPlane.Variables.Overrides)
	for i := range topology.Workers.MachineDeployments {
		pool := &topology.Workers.MachineDeployments[i]
		s.Pools = append(s.Pools, PoolSource{
			KindMachineDeployment, pool.Name, pool.Metadata.Annotations,
			valueOf(pool.Variables.Overrides),
		})
	}
	for i := range topology.Workers.MachinePools {
		pool := &topology.Workers.MachinePools[i]
		s.Pools = append(s.Pools, PoolSource{
			KindMachinePool, pool.Name, pool.Metadata.Annotations,
			valueOf(pool.Variables.Overrides),
		})
	}
	return s
}

func valueOf(variables []clusterv1.ClusterVariable) []byte {
	for i := range variables {
		if variables[i].Name == contract.VariableName {
			return variables[i].Value.Raw
		}
	}
	return nil
}

// CheckNames warns of labels and annotations of a Cluster and of the pools of its topology that carry the domain of the
// product and that nothing reads.
func CheckNames(labels map[string]string, s Source) []finding.Finding {
	found := CheckCluster(labels, s.Annotations)
	for _, pool := range s.Pools {
		for _, warning := range CheckPool(pool.Annotations) {
			warning.Place = warning.Place.Of(Pool{Kind: pool.Kind, Name: pool.Name, Topology: true}.String())
			found = append(found, warning)
		}
	}
	return found
}

// ReadSettings returns the settings of a Cluster. A variable and an annotation with the same meaning must agree; if
// only one of them is set, it counts. A pool may name another Secret and nothing else, because a Cluster has one set of
// targets and one NO_PROXY.
//
// Its error is finding.Errors in the order of Source. The ClusterSettings are then incomplete.
func ReadSettings(s Source) (ClusterSettings, error) {
	var r reader
	settings := r.cluster(s)
	r.controlPlane(s.ControlPlane, settings)
	settings.Pools = slices.Grow(settings.Pools, len(s.Pools))
	for _, pool := range s.Pools {
		settings.Pools = append(settings.Pools, r.pool(pool, settings))
	}
	return settings, r.found.Err()
}

// reader collects the findings about one Cluster.
type reader struct{ found finding.Errors }

func (r *reader) find(code finding.Code, place finding.Place, message, advice string) {
	r.found = append(r.found, finding.Rejection(code, place, message, advice))
}

// variable reads a variable.
func (r *reader) variable(at finding.Place, raw []byte) Variable {
	v, found := parse(at, raw)
	r.found = append(r.found, found...)
	return v
}

// cluster reads the settings of the whole Cluster.
func (r *reader) cluster(s Source) ClusterSettings {
	options, err := ParseOptions(s.Annotations)
	r.found = append(r.found, finding.Of(err)...)
	at := finding.Option("spec", "topology", "variables").Item(contract.VariableName)
	v := r.variable(at, s.Variable)
	settings := ClusterSettings{Options: options, SecretName: s.Annotations[contract.AnnotationSecret]}
	if v.SecretName == contract.SecretNone {
		r.find(CodeBadVariable, at.Child(contract.VariableSecretName),
			"only a pool can opt out of the proxy", "name a Secret, or remove label "+contract.LabelEnabled+" from the Cluster")
	}
	metadata := finding.Field("metadata")
	if isContradiction(v.SecretName, settings.SecretName) {
		r.contradict(at.Child(contract.VariableSecretName), metadata, contract.AnnotationSecret)
	}
	if v.SecretName != "" {
		settings.SecretName = v.SecretName
	}
	if v.Targets != nil {
		if _, found := s.Annotations[contract.AnnotationTargets]; found && !slices.Equal(v.Targets, options.Targets) {
			r.contradict(at.Child(contract.VariableTargets), metadata, contract.AnnotationTargets)
		}
		settings.Options.Targets = v.Targets
		settings.Options.TargetsIn = "variable " + contract.VariableName + "." + contract.VariableTargets
	}
	settings.Options.NoProxy = strings.Join(v.NoProxy, "\n")
	return settings
}

// pool reads the settings of a pool.
func (r *reader) pool(s PoolSource, cluster ClusterSettings) Pool {
	pool := Pool{Kind: s.Kind, Name: s.Name, Topology: true, Override: s.Annotations[contract.AnnotationSecret]}
	if len(s.Variable) == 0 {
		return pool
	}
	list := "machineDeployments"
	if s.Kind == KindMachinePool {
		list = "machinePools"
	}
	parent := finding.Option("spec", "topology", "workers", list).Item(s.Name)
	at := parent.Child("variables", "overrides").Item(contract.VariableName)
	v := r.variable(at, s.Variable)
	if isContradiction(v.SecretName, pool.Override) {
		r.contradict(at.Child(contract.VariableSecretName), parent.Child("metadata"), contract.AnnotationSecret)
	}
	if v.SecretName != "" {
		pool.Override = v.SecretName
	}
	r.sameOptions(at, v, cluster)
	return pool
}

// controlPlane checks that the override of the control plane agrees with the Cluster.
func (r *reader) controlPlane(raw []byte, cluster ClusterSettings) {
	at := finding.Option("spec", "topology", "controlPlane", "variables", "overrides").Item(contract.VariableName)
	v := r.variable(at, raw)
	if v.SecretName != "" && v.SecretName != cluster.SecretName {
		r.differs(at, contract.VariableSecretName)
	}
	r.sameOptions(at, v, cluster)
}

// sameOptions checks that an override agrees with the Cluster in everything but the Secret.
func (r *reader) sameOptions(at finding.Place, v Variable, cluster ClusterSettings) {
	if v.Targets != nil && !slices.Equal(v.Targets, cluster.Options.Targets) {
		r.differs(at, contract.VariableTargets)
	}
	if len(v.NoProxy) > 0 && strings.Join(v.NoProxy, "\n") != cluster.Options.NoProxy {
		r.differs(at, contract.VariableNoProxy)
	}
}

func (r *reader) differs(variable finding.Place, field string) {
	advice := "a Cluster has one; remove the field from the override"
	if field == contract.VariableSecretName {
		advice = "the control plane uses the Secret of the Cluster; remove the field from the override"
	}
	r.find(CodeContradiction, variable.Child(field), "differs from the Cluster's value", advice)
}

// isContradiction reports whether a variable and an annotation are both set and differ.
func isContradiction(variable, annotation string) bool {
	return variable != "" && annotation != "" && variable != annotation
}

func (r *reader) contradict(variable, metadata finding.Place, annotation string) {
	r.find(CodeContradiction, variable, "differs from "+metadata.Child("annotations").Item(annotation).String(),
		"set both to the same value, or remove one of them")
}
