// Package slim removes from objects what no decision reads, before a cache keeps them, and stores equal strings once. A
// management cluster may have ten thousand Clusters, and the manager has little memory.
//
// Each function changes the object that it is given. Every decision is the same on the rest: SpecOf of a slim spec is
// that of the whole one except for the contents of files that are not managed, and a spec is empty only if it was.
// Labels, annotations and owner references stay, as they are written back. Never send a slim object to the API server
// whole. Lists that stay are copied: a decoder leaves up to half of their arrays empty.
package slim

import (
	"bytes"
	"reflect"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Metadata drops managed fields and the configuration that kubectl has applied last.
func Metadata(object metav1.Object) {
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	object.SetAnnotations(share(annotations))
	object.SetLabels(share(object.GetLabels()))
	object.SetNamespace(once(object.GetNamespace()))
	object.SetFinalizers(each(object.GetFinalizers()))
	owners := slices.Clone(object.GetOwnerReferences())
	for i := range owners {
		owners[i].APIVersion, owners[i].Kind, owners[i].Name = once(owners[i].APIVersion), once(owners[i].Kind),
			once(owners[i].Name)
	}
	object.SetOwnerReferences(owners)
}

// Name keeps nothing but what names a version of an object.
func Name(object *metav1.PartialObjectMetadata) {
	object.ObjectMeta = metav1.ObjectMeta{
		Namespace: once(object.Namespace), Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
	}
}

// Cluster keeps the spec and the conditions that are read.
func Cluster(cluster *clusterv1.Cluster) {
	Metadata(cluster)
	spec := &cluster.Spec
	spec.ControlPlaneRef, spec.InfrastructureRef = reference(spec.ControlPlaneRef), reference(spec.InfrastructureRef)
	spec.ClusterNetwork.Pods.CIDRBlocks = each(spec.ClusterNetwork.Pods.CIDRBlocks)
	spec.ClusterNetwork.Services.CIDRBlocks = each(spec.ClusterNetwork.Services.CIDRBlocks)
	cluster.Status = clusterv1.ClusterStatus{
		Conditions: conditions(cluster.Status.Conditions, contract.ConditionProxyConfigured,
			contract.ConditionProxyPublished, clusterv1.ClusterTopologyReconciledCondition),
		Initialization: clusterv1.ClusterInitializationStatus{
			InfrastructureProvisioned: cluster.Status.Initialization.InfrastructureProvisioned,
		},
	}
}

// ControlPlane keeps the bootstrap spec, the versions, rollout.after, and whether there are Machines.
func ControlPlane(controlPlane *controlplanev1.KubeadmControlPlane) {
	Metadata(controlPlane)
	controlPlane.Spec = controlplanev1.KubeadmControlPlaneSpec{
		Version:           once(controlPlane.Spec.Version),
		Rollout:           controlplanev1.KubeadmControlPlaneRolloutSpec{After: controlPlane.Spec.Rollout.After},
		KubeadmConfigSpec: bootstrapSpec(controlPlane.Spec.KubeadmConfigSpec),
	}
	controlPlane.Status = controlplanev1.KubeadmControlPlaneStatus{
		Replicas:   controlPlane.Status.Replicas,
		Version:    once(controlPlane.Status.Version), //nolint:staticcheck // the field of the contract
		Conditions: conditions(controlPlane.Status.Conditions, clusterv1.PausedCondition),
	}
}

// Template keeps the bootstrap spec and the metadata for Machines.
func Template(template *bootstrapv1.KubeadmConfigTemplate) {
	Metadata(template)
	template.Spec.Template.Spec = bootstrapSpec(template.Spec.Template.Spec)
}

// Config keeps the bootstrap spec, and whether there is bootstrap data.
func Config(config *bootstrapv1.KubeadmConfig) {
	Metadata(config)
	config.Spec = bootstrapSpec(config.Spec)
	config.Status = bootstrapv1.KubeadmConfigStatus{
		DataSecretName: config.Status.DataSecretName,
		Conditions:     conditions(config.Status.Conditions, bootstrapv1.KubeadmConfigDataSecretAvailableCondition),
	}
}

// Deployment keeps the references of its Machines, and rollout.after.
func Deployment(deployment *clusterv1.MachineDeployment) {
	Metadata(deployment)
	spec := clusterv1.MachineDeploymentSpec{ClusterName: once(deployment.Spec.ClusterName)}
	spec.Rollout.After = deployment.Spec.Rollout.After
	spec.Template.Spec = machineSpec(deployment.Spec.Template.Spec)
	deployment.Spec, deployment.Status = spec, clusterv1.MachineDeploymentStatus{}
}

// Pool keeps the references of its Machines.
func Pool(pool *clusterv1.MachinePool) {
	Metadata(pool)
	spec := clusterv1.MachinePoolSpec{ClusterName: once(pool.Spec.ClusterName)}
	spec.Template.Spec = machineSpec(pool.Spec.Template.Spec)
	pool.Spec, pool.Status = spec, clusterv1.MachinePoolStatus{}
}

// Secret keeps all data, as it is written back, and script once for all Secrets that have it.
func Secret(secret *corev1.Secret, script []byte) {
	Metadata(secret)
	data := make(map[string][]byte, len(secret.Data))
	for key, value := range secret.Data {
		if bytes.Equal(value, script) {
			value = script
		}
		data[once(key)] = value
	}
	if secret.Data != nil {
		secret.Data = data
	}
}

// ClusterResourceSet keeps what it delivers, and Cluster API's message about it.
func ClusterResourceSet(set *addonsv1.ClusterResourceSet) {
	Metadata(set)
	set.Status = addonsv1.ClusterResourceSetStatus{
		Conditions: conditions(set.Status.Conditions, addonsv1.ClusterResourceSetResourcesAppliedCondition),
	}
}

// Binding keeps what Cluster API has applied of our ClusterResourceSet.
func Binding(binding *addonsv1.ClusterResourceSetBinding) {
	binding.ObjectMeta = metav1.ObjectMeta{
		Namespace: once(binding.Namespace), Name: binding.Name, UID: binding.UID, ResourceVersion: binding.ResourceVersion,
	}
	ours := slices.DeleteFunc(binding.Spec.Bindings, func(b addonsv1.ResourceSetBinding) bool {
		return b.ClusterResourceSetName != binding.Name+contract.DeliverySuffix
	})
	binding.Spec.Bindings = slices.Clone(ours)
}

// bootstrapSpec returns a spec with what patch.SpecOf reads.
func bootstrapSpec(whole bootstrapv1.KubeadmConfigSpec) bootstrapv1.KubeadmConfigSpec {
	spec := bootstrapv1.KubeadmConfigSpec{
		Files: files(whole.Files), PreKubeadmCommands: each(whole.PreKubeadmCommands),
		PostKubeadmCommands: each(whole.PostKubeadmCommands),
		Format:              whole.Format,
	}
	spec.InitConfiguration.NodeRegistration = registration(whole.InitConfiguration.NodeRegistration)
	spec.JoinConfiguration.NodeRegistration = registration(whole.JoinConfiguration.NodeRegistration)
	if hasOthers(whole) && !hasOthers(spec) {
		spec.Verbosity = new(int32) // not empty
	}
	return spec
}

// hasOthers reports whether a spec has more than files and commands.
func hasOthers(spec bootstrapv1.KubeadmConfigSpec) bool {
	spec.Files, spec.PreKubeadmCommands, spec.PostKubeadmCommands = nil, nil, nil
	return !reflect.DeepEqual(spec, bootstrapv1.KubeadmConfigSpec{})
}

// files drops the contents of files that are not managed.
func files(files []bootstrapv1.File) []bootstrapv1.File {
	view := patch.SpecOf(&bootstrapv1.KubeadmConfigSpec{Files: files}).Files
	for i := range files {
		f := &files[i]
		if !patch.IsManagedFile(view[i]) {
			f.Content = ""
		}
		f.Path, f.Owner, f.Permissions, f.Content = once(f.Path), once(f.Owner), once(f.Permissions), once(f.Content)
		f.ContentFrom.Secret.Name, f.ContentFrom.Secret.Key = once(f.ContentFrom.Secret.Name), once(f.ContentFrom.Secret.Key)
	}
	return slices.Clone(files)
}

func registration(whole bootstrapv1.NodeRegistrationOptions) bootstrapv1.NodeRegistrationOptions {
	for i := range whole.KubeletExtraArgs {
		arg := &whole.KubeletExtraArgs[i]
		arg.Name = once(arg.Name)
		if arg.Value != nil {
			arg.Value = new(once(*arg.Value))
		}
	}
	return bootstrapv1.NodeRegistrationOptions{
		CRISocket:        once(whole.CRISocket),
		KubeletExtraArgs: slices.Clone(whole.KubeletExtraArgs),
	}
}

func machineSpec(whole clusterv1.MachineSpec) clusterv1.MachineSpec {
	return clusterv1.MachineSpec{
		ClusterName: once(whole.ClusterName), Version: once(whole.Version),
		InfrastructureRef: reference(whole.InfrastructureRef),
		Bootstrap:         clusterv1.Bootstrap{ConfigRef: reference(whole.Bootstrap.ConfigRef)},
	}
}

func reference(r clusterv1.ContractVersionedObjectReference) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: once(r.APIGroup), Kind: once(r.Kind), Name: once(r.Name)}
}

// conditions returns those of some types.
func conditions(all []metav1.Condition, types ...string) []metav1.Condition {
	var kept []metav1.Condition
	for _, kind := range types {
		if condition := meta.FindStatusCondition(all, kind); condition != nil {
			one := *condition
			one.Type, one.Status, one.Reason, one.Message = once(one.Type), once(one.Status), once(one.Reason), once(one.Message)
			kept = append(kept, one)
		}
	}
	return kept
}

// once returns the one stored string that equals s.
func once[S ~string](s S) S {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
}

func each(list []string) []string {
	for i := range list {
		list[i] = once(list[i])
	}
	return slices.Clone(list)
}

// share returns an equal map whose strings are kept once. It has no spare room.
func share(values map[string]string) map[string]string {
	if values == nil {
		return nil
	}
	shared := make(map[string]string, len(values))
	for key, value := range values {
		shared[once(key)] = once(value)
	}
	return shared
}
