package world

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// The indexes of a cache.
const (
	// IndexControlPlane finds Clusters by the name of their KubeadmControlPlane.
	IndexControlPlane = "spec.controlPlaneRef.name"
	// IndexBootstrap finds MachineDeployments and MachinePools by the name of their kubeadm bootstrap object.
	IndexBootstrap = "spec.template.spec.bootstrap.configRef.name"
	// IndexLabel finds KubeadmConfigs, Machines and generated Secrets for nodes by the Cluster that a label names.
	IndexLabel = "clusterLabel"
	// IndexCluster finds MachineDeployments and MachinePools by their Cluster.
	IndexCluster = "spec.clusterName"
	// IndexSecret finds Clusters and pools by the names of the proxy Secrets that may serve them, except for that of the
	// Cluster, which follows from the Cluster's name.
	IndexSecret = "proxySecret"
	// IndexTopology finds the patched KubeadmConfigTemplates of a topology by their Cluster, used or not.
	IndexTopology = "topologyOf"
	// IndexPatchedFor finds patched KubeadmConfigTemplates by Cluster: by the owner reference that Cluster API has set,
	// and by the names of the generated Secrets that their entries refer to.
	IndexPatchedFor = "patchedFor"
	// IndexOutputs finds the Secrets of outputs by their Cluster.
	IndexOutputs = "outputsOf"
)

// SetupIndexes adds the indexes of the controller and the webhooks to a cache.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		field  string
		values client.IndexerFunc
	}{
		{&clusterv1.Cluster{}, IndexControlPlane, func(object client.Object) []string {
			cluster, ok := object.(*clusterv1.Cluster)
			if !ok || cluster.Spec.ControlPlaneRef.Kind != plan.KindControlPlane {
				return nil
			}
			return []string{cluster.Spec.ControlPlaneRef.Name}
		}},
		{&clusterv1.Cluster{}, IndexSecret, secretNames},
		{&bootstrapv1.KubeadmConfigTemplate{}, IndexTopology, topologyOf},
		{&clusterv1.MachineDeployment{}, IndexCluster, poolIndex(func(p plan.Pool) string { return p.Cluster })},
		{&clusterv1.MachinePool{}, IndexCluster, poolIndex(func(p plan.Pool) string { return p.Cluster })},
		{&clusterv1.MachineDeployment{}, IndexBootstrap, poolIndex(bootstrapOf)},
		{&clusterv1.MachinePool{}, IndexBootstrap, poolIndex(bootstrapOf)},
		{&clusterv1.MachineDeployment{}, IndexSecret, poolIndex(func(p plan.Pool) string { return p.Override })},
		{&clusterv1.MachinePool{}, IndexSecret, poolIndex(func(p plan.Pool) string { return p.Override })},
		{&bootstrapv1.KubeadmConfigTemplate{}, IndexPatchedFor, PatchedFor},
		{&bootstrapv1.KubeadmConfig{}, IndexLabel, labelIndex(clusterv1.ClusterNameLabel)},
		{&corev1.Secret{}, IndexLabel, secretsOf(false)},
		{&corev1.Secret{}, IndexOutputs, secretsOf(true)},
		{MachineMetadata(), IndexLabel, labelIndex(clusterv1.ClusterNameLabel)},
	} {
		if err := indexer.IndexField(ctx, index.object, index.field, index.values); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

// MachineMetadata is the form in which Machines are watched.
func MachineMetadata() *metav1.PartialObjectMetadata {
	machine := &metav1.PartialObjectMetadata{}
	machine.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	return machine
}

// IsOutput reports whether a generated Secret is that of an output, which no node reads.
func IsOutput(secret client.Object) bool {
	_, output := secret.GetLabels()[contract.LabelOutput]
	return output
}

// ClusterOf returns the name of the Cluster that a Secret was generated for, "" if its name and its labels do not
// agree, as in a copy.
func ClusterOf(secret client.Object) string {
	cluster, of := secret.GetLabels()[contract.LabelGenerated], settings.GeneratedFor(secret.GetName())
	if IsOutput(secret) {
		of = strings.TrimSuffix(secret.GetName(), "-"+secret.GetLabels()[contract.LabelOutput])
	}
	if of != cluster {
		return ""
	}
	return cluster
}

// secretsOf indexes generated Secrets by their Cluster: those of outputs, or the others.
func secretsOf(outputs bool) client.IndexerFunc {
	return func(secret client.Object) []string {
		if cluster := ClusterOf(secret); cluster != "" && IsOutput(secret) == outputs {
			return []string{cluster}
		}
		return nil
	}
}

func labelIndex(label string) client.IndexerFunc {
	return func(object client.Object) []string {
		if value := object.GetLabels()[label]; value != "" {
			return []string{value}
		}
		return nil
	}
}

func bootstrapOf(p plan.Pool) string {
	if p.Bootstrap.Kind != p.BootstrapKind() {
		return ""
	}
	return p.Bootstrap.Name
}

func poolIndex(value func(plan.Pool) string) client.IndexerFunc {
	return func(object client.Object) []string {
		if v := value(plan.PoolOf(object)); v != "" {
			return []string{v}
		}
		return nil
	}
}

// secretNames are the names under which proxy Secrets of a Cluster and of the pools of its topology are looked up,
// without the one that has the name of the Cluster: an index keeps some 270 bytes for each value.
func secretNames(object client.Object) []string {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	view, overrides := settings.ClusterOf(cluster), []string{""}
	if view.Topology {
		desired, _ := settings.Of(cluster) // as far as it can be read
		view = desired.ApplyTo(view)
		for _, pool := range desired.Pools {
			if pool.HasOwnSecret() {
				overrides = append(overrides, pool.Override)
			}
		}
	}
	var names []string
	for _, override := range overrides {
		for _, candidate := range settings.SecretCandidates(view, override) {
			if candidate.Name != view.Name+contract.ClusterSecretSuffix {
				names = append(names, candidate.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// topologyOf returns the values of IndexTopology.
func topologyOf(object client.Object) []string {
	template, ok := object.(*bootstrapv1.KubeadmConfigTemplate)
	if !ok || !plan.IsTopologyOwned(template.Labels) || !patch.IsPatched(kinds.View(template)) {
		return nil
	}
	return labelIndex(clusterv1.ClusterNameLabel)(template)
}

// PatchedFor returns the values of IndexPatchedFor.
func PatchedFor(object client.Object) []string {
	template, ok := object.(*bootstrapv1.KubeadmConfigTemplate)
	if !ok {
		return nil
	}
	spec := kinds.View(template)
	if !patch.IsPatched(spec) || plan.IsTopologyOwned(template.Labels) {
		return nil
	}
	var values []string
	for _, owner := range template.OwnerReferences {
		if owner.Kind == "Cluster" && strings.HasPrefix(owner.APIVersion, clusterv1.GroupVersion.Group+"/") {
			values = append(values, owner.Name)
		}
	}
	for _, name := range patch.References(spec) {
		// The Secret may be deleted, or may never have been written.
		if cluster := settings.GeneratedFor(name); cluster != "" {
			values = append(values, cluster)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}
