// Package plan decides what happens to one bootstrap object: whether it may be changed, which recipe and output version
// it gets, and when. Controller, webhooks and hook implement Facts and carry out the decision.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Kinds of bootstrap objects.
const (
	KindControlPlane = settings.KindControlPlane
	KindTemplate     = "KubeadmConfigTemplate"
	KindConfig       = "KubeadmConfig"
	// KindMachineSet and KindMachine are kinds of objects in manifests that are read like pools.
	KindMachineSet = "MachineSet"
	KindMachine    = "Machine"
)

// refersTo reports whether managed files of spec refer to a Secret.
func refersTo(spec patch.Spec, secret string) bool {
	return slices.Contains(patch.References(spec), secret)
}

// Pool is the relevant part of a MachineDeployment or MachinePool.
type Pool struct {
	settings.Pool
	// Object is the name of the object, which for a pool of a topology is not its Name.
	Object string
	// Cluster is the name of its Cluster.
	Cluster string
	// Bootstrap is its bootstrap object: a KubeadmConfigTemplate or, for a MachinePool, a KubeadmConfig.
	Bootstrap clusterv1.ContractVersionedObjectReference
	// Infrastructure is what its machines are created from: a machine template or, for a MachinePool, a pool of the
	// provider.
	Infrastructure clusterv1.ContractVersionedObjectReference
	// Annotations are those of the pool. They are not a copy.
	Annotations map[string]string
	// Version is the Kubernetes version of its Machines.
	Version string
}

func (p Pool) String() string { return p.Kind + " " + p.Object }

// TopologyPool returns a pool that is known from spec.topology only.
func TopologyPool(pool settings.Pool) Pool { return Pool{Pool: pool, Object: pool.Name} }

// BootstrapKind is the kind of bootstrap object that a pool refers to if its nodes are kubeadm's.
func (p Pool) BootstrapKind() string {
	if p.Kind == settings.KindMachinePool || p.Kind == KindMachine {
		return KindConfig
	}
	return KindTemplate
}

// PoolOf returns the relevant part of a MachineDeployment or MachinePool, or of what manifests have in their form.
func PoolOf(object metav1.Object) Pool {
	var p Pool
	read := func(kind, topologyName, cluster string, machine clusterv1.MachineSpec) {
		p = Pool{
			Pool: settings.Pool{
				Kind: kind, Name: object.GetName(),
				Override: object.GetAnnotations()[contract.AnnotationSecret],
			},
			Object: object.GetName(), Annotations: object.GetAnnotations(), Cluster: cluster, Version: machine.Version,
			Bootstrap: machine.Bootstrap.ConfigRef, Infrastructure: machine.InfrastructureRef,
		}
		if topologyName != "" {
			p.Name, p.Topology = topologyName, true
		}
	}
	switch o := object.(type) {
	case *clusterv1.MachineDeployment:
		read(cmp.Or(o.Kind, settings.KindMachineDeployment), o.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel],
			o.Spec.ClusterName, o.Spec.Template.Spec)
	case *clusterv1.MachinePool:
		read(cmp.Or(o.Kind, settings.KindMachinePool), o.Labels[clusterv1.ClusterTopologyMachinePoolNameLabel],
			o.Spec.ClusterName, o.Spec.Template.Spec)
	}
	return p
}

// Override returns the proxy Secret that the pools of o name, contract.SecretNone, or "" for the Cluster's.
func (o Object) Override() string {
	if len(o.Pools) == 0 {
		return ""
	}
	return o.Pools[0].Override
}

// Overrider names the pool whose annotation Override returns, "" if there is none.
func (o Object) Overrider() string {
	if o.Override() == "" {
		return ""
	}
	return o.Pools[0].String()
}

// GeneratedSecret returns the name of the generated Secret that o refers to.
func (o Object) GeneratedSecret(cluster string) string { return o.pool().GeneratedSecret(cluster) }

// pool returns the pool that decides about the proxy of o: one of its pools, which agree, or the zero one.
func (o Object) pool() settings.Pool {
	if len(o.Pools) == 0 {
		return settings.Pool{}
	}
	return o.Pools[0].Pool
}

// IsOthers reports whether managed files of spec refer to a Secret that was generated neither for the named Cluster nor
// for one of its pools. Such entries belong to another Cluster and are left alone.
func IsOthers(spec patch.Spec, cluster string) bool {
	return slices.ContainsFunc(patch.References(spec),
		func(name string) bool { return settings.GeneratedFor(name) != cluster })
}

// IsTopologyOwned reports whether labels are of an object that a ClusterClass topology owns. Writes of others to such
// an object are reverted, or rotate templates, at once.
func IsTopologyOwned(labels map[string]string) bool {
	_, owned := labels[clusterv1.ClusterTopologyOwnedLabel]
	return owned
}

// Version returns the output version for spec, so that an upgrade of this program changes no object: for a patched
// object the version recorded in annotations, or, for a KubeadmConfig that was cloned from a patched template and has
// no record, the version whose recipe it has. Everything else gets the newest. recipe returns the recipe of a version.
func Version(annotations map[string]string, spec patch.Spec, newest int,
	recipe func(version int) (patch.Recipe, error),
) int {
	if !patch.IsPatched(spec) {
		return newest
	}
	if recorded, err := strconv.Atoi(annotations[contract.AnnotationOutputVersion]); err == nil {
		return recorded
	}
	for version := newest - 1; version > 0; version-- {
		made, err := recipe(version)
		if err != nil {
			continue
		}
		if ensured, err := patch.Ensure(spec, made); err == nil && len(ensured.Edits) == 0 {
			return version
		}
	}
	return newest
}

// trustOnly returns the options of a Cluster whose proxy Secret has certificates and no proxy URL: only the trust store
// is configured.
func trustOnly(options settings.Options) (settings.Options, error) {
	if !slices.Contains(options.Targets, contract.TargetTrust) {
		return options,
			fmt.Errorf("the proxy Secret has only key %s, and %s leaves out target %s; add that target, or a proxy URL to "+
				"the Secret",
				contract.KeyTrustedCA, patch.TargetsPlace(options.TargetsIn), contract.TargetTrust)
	}
	options.Targets = []contract.Target{contract.TargetTrust}
	return options, nil
}

// Recipe returns the recipe of an output version whose files refer to a generated Secret. trust is for settings without
// a proxy URL, which configure only the trust store. Its errors are for the user.
func Recipe(options settings.Options, version int, trust bool, secret string) (patch.Recipe, error) {
	if trust {
		var err error
		if options, err = trustOnly(options); err != nil {
			return patch.Recipe{}, err
		}
	}
	return patch.NewRecipe(patch.Options{
		Version: version, Targets: options.Targets, TargetsIn: options.TargetsIn, SecretName: secret,
	})
}
