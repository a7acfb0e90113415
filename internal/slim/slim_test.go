package slim

import (
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

func rudeSpec() bootstrapv1.KubeadmConfigSpec {
	header := "# Managed by " + contract.Name + "\n"
	spec := bootstrapv1.KubeadmConfigSpec{
		Files: []bootstrapv1.File{
			{Path: "/etc/mine", Content: "%s \"'`$ {{ . }}\n", Append: new(bool), Encoding: bootstrapv1.Base64},
			{Path: "/etc/systemd/system/kubelet.service.d/http-proxy.conf", Content: header},
			{Path: contract.PathProxyEnv, ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "a-proxy-files", Key: contract.KeyProxyEnv}}},
		},
		PreKubeadmCommands: []string{"", "echo %s # " + contract.Name}, PostKubeadmCommands: []string{},
		Format: bootstrapv1.Ignition,
		NTP:    bootstrapv1.NTP{Servers: []string{"ntp.example.com"}},
	}
	spec.JoinConfiguration.NodeRegistration = bootstrapv1.NodeRegistrationOptions{
		CRISocket: "npipe://containerd", KubeletExtraArgs: []bootstrapv1.Arg{
			{Name: "a"},
			{Name: "b", Value: new("")},
			{Name: "c", Value: new("%")},
		},
	}
	spec.ClusterConfiguration.CertificatesDir = "/etc"
	return spec
}

// kept returns a spec as a reader sees it after a cache has kept it.
func kept(whole bootstrapv1.KubeadmConfigSpec) bootstrapv1.KubeadmConfigSpec {
	b := bootstrapOf(&whole)
	return b.whole()
}

// TestBootstrapSpec_SaysTheSame compares what decisions read before and after.
func TestBootstrapSpec_SaysTheSame(t *testing.T) {
	t.Parallel()
	whole := rudeSpec()
	want := patch.SpecOf(&whole)
	for i := range want.Files {
		if !patch.IsManagedFile(want.Files[i]) && !patch.ReadsContent(want.Files[i].Path) {
			want.Files[i].Content = ""
		}
	}
	slim := kept(whole)
	if diff := cmp.Diff(want, patch.SpecOf(&slim)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if again := kept(slim); !reflect.DeepEqual(again, slim) {
		t.Errorf("slim once more:\n%s", cmp.Diff(slim, again))
	}
	if slim.NTP.Servers != nil || slim.ClusterConfiguration.CertificatesDir != "" {
		t.Errorf("it keeps what nobody reads: %+v", slim)
	}
}

// TestBootstrapSpec_IsEmptyOnlyIfItWas fills one field after the other: what holds the files decides which parents a
// patch adds.
func TestBootstrapSpec_IsEmptyOnlyIfItWas(t *testing.T) {
	t.Parallel()
	if slim := kept(bootstrapv1.KubeadmConfigSpec{}); !reflect.DeepEqual(slim, bootstrapv1.KubeadmConfigSpec{}) {
		t.Errorf("an empty spec is %+v", slim)
	}
	kind := reflect.TypeFor[bootstrapv1.KubeadmConfigSpec]()
	for i := range kind.NumField() {
		var whole bootstrapv1.KubeadmConfigSpec
		if !fill(reflect.ValueOf(&whole).Elem().Field(i)) {
			t.Fatalf("field %s cannot be filled", kind.Field(i).Name)
		}
		others := hasOthers(whole)
		slim := kept(whole)
		if reflect.DeepEqual(slim, bootstrapv1.KubeadmConfigSpec{}) || hasOthers(slim) != others {
			t.Errorf("%s: others %t, then %t in %+v", kind.Field(i).Name, others, hasOthers(slim), slim)
		}
	}
}

// fill sets the last field of a value, which nobody reads where there is a choice.
func fill(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Struct:
		return fill(v.Field(v.NumField() - 1))
	default:
		return false
	}
	return true
}

func TestPools_AreTheSamePools(t *testing.T) {
	t.Parallel()
	ref := clusterv1.ContractVersionedObjectReference{
		APIGroup: "bootstrap.cluster.x-k8s.io",
		Kind:     "KubeadmConfigTemplate", Name: "a%",
	}
	after := metav1.Unix(1_800_000_000, 0)
	machine := clusterv1.MachineSpec{
		ClusterName: "a", Version: "v1.36.3", Bootstrap: clusterv1.Bootstrap{ConfigRef: ref},
		InfrastructureRef: ref, ProviderID: "x",
	}
	metadata := metav1.ObjectMeta{
		Namespace: "a", Name: "md", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		Labels: map[string]string{
			clusterv1.ClusterTopologyMachineDeploymentNameLabel: "pool",
			clusterv1.ClusterTopologyMachinePoolNameLabel:       "pool",
		},
		Annotations: map[string]string{contract.AnnotationSecret: "other", corev1.LastAppliedConfigAnnotation: "{}"},
	}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: *metadata.DeepCopy()}
	deployment.Spec = clusterv1.MachineDeploymentSpec{
		ClusterName: "a", Replicas: new(int32(3)),
		Template: clusterv1.MachineTemplateSpec{Spec: machine},
	}
	deployment.Spec.Rollout.After = after
	pool := &clusterv1.MachinePool{ObjectMeta: *metadata.DeepCopy()}
	pool.Spec = clusterv1.MachinePoolSpec{ClusterName: "a", Template: clusterv1.MachineTemplateSpec{Spec: machine}}
	delete(metadata.Annotations, corev1.LastAppliedConfigAnnotation)
	wantDeployment, wantPool := plan.PoolOf(deployment), plan.PoolOf(pool)
	deployment, pool = again[Deployment](t, deployment), again[Pool](t, pool)
	for want, got := range map[*plan.Pool]plan.Pool{
		&wantDeployment: plan.PoolOf(deployment),
		&wantPool:       plan.PoolOf(pool),
	} {
		delete(want.Annotations, corev1.LastAppliedConfigAnnotation)
		if diff := cmp.Diff(*want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if !deployment.Spec.Rollout.After.Equal(&after) || deployment.Spec.Replicas != nil || deployment.ManagedFields != nil {
		t.Errorf("got %+v", deployment)
	}
}

func TestConditions_KeepsThoseThatAreRead(t *testing.T) {
	t.Parallel()
	all := []metav1.Condition{
		{Type: "Available"},
		{Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Message: "%"},
		{Type: contract.ConditionProxyPublished},
		{Type: contract.ConditionProxyConfigured},
		{Type: bootstrapv1.KubeadmConfigDataSecretAvailableCondition},
		{Type: clusterv1.ClusterTopologyReconciledCondition},
	}
	cluster := &clusterv1.Cluster{Status: clusterv1.ClusterStatus{Conditions: slices.Clone(all), Phase: "x"}}
	controlPlane := &controlplanev1.KubeadmControlPlane{Status: controlplanev1.KubeadmControlPlaneStatus{Conditions: slices.Clone(all), Replicas: new(int32(1)), Version: "v1.36.0"}} //nolint:staticcheck // the field of the contract
	config := &bootstrapv1.KubeadmConfig{Status: bootstrapv1.KubeadmConfigStatus{
		Conditions:     slices.Clone(all),
		DataSecretName: "data",
	}}
	cluster, controlPlane, config = again[Cluster](t, cluster), again[ControlPlane](t, controlPlane), again[Config](t, config)
	for want, got := range map[string][]metav1.Condition{
		contract.ConditionProxyConfigured + " " + contract.ConditionProxyPublished + " " + clusterv1.ClusterTopologyReconciledCondition: cluster.Status.Conditions,
		clusterv1.PausedCondition:                             controlPlane.Status.Conditions,
		bootstrapv1.KubeadmConfigDataSecretAvailableCondition: config.Status.Conditions,
	} {
		types := ""
		for _, condition := range got {
			types += " " + condition.Type
		}
		if types != " "+want {
			t.Errorf("got%s, want %s", types, want)
		}
	}
	if controlPlane.Status.Replicas == nil || *controlPlane.Status.Replicas != 1 ||
		controlPlane.Status.Version != "v1.36.0" || //nolint:staticcheck // as above
		config.Status.DataSecretName != "data" {
		t.Errorf("got %+v and %+v", controlPlane.Status, config.Status)
	}
}

// TestSecret_KeepsAllData compares bytes: a Secret is written back as it is read.
func TestSecret_KeepsAllData(t *testing.T) {
	t.Parallel()
	script := []byte("#!/bin/sh\n")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Labels:          map[string]string{"a": "b"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Cluster", Name: "a", UID: "u"}},
		},
		Data: map[string][]byte{"setup.sh": []byte("#!/bin/sh\n"), "mine": []byte("%\x00"), "empty": {}},
	}
	want := secret.DeepCopy()
	Secret(secret, script)
	if !reflect.DeepEqual(want, secret) {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, secret))
	}
	if unsafe.SliceData(secret.Data["setup.sh"]) != unsafe.SliceData(script) { //nolint:gosec // compared, not followed
		t.Error("the script is kept once more")
	}
	empty := &corev1.Secret{}
	Secret(empty, script)
	if !reflect.DeepEqual(empty, &corev1.Secret{}) {
		t.Errorf("an empty Secret is %+v", empty)
	}
}

// TestBinding_KeepsWhatIsOfOurs drops what Cluster API has applied of the ClusterResourceSets of others.
func TestBinding_KeepsWhatIsOfOurs(t *testing.T) {
	t.Parallel()
	binding := &addonsv1.ClusterResourceSetBinding{ObjectMeta: metav1.ObjectMeta{Name: "prod", Labels: map[string]string{"a": "b"}}}
	for _, name := range []string{"cni", "prod-proxy", "proxy", "prod-proxy-2"} {
		binding.Spec.Bindings = append(binding.Spec.Bindings, addonsv1.ResourceSetBinding{
			ClusterResourceSetName: name, Resources: []addonsv1.ResourceBinding{{Hash: "sha256:" + name, Applied: new(true)}},
		})
	}
	Binding(binding)
	if got := binding.Spec.Bindings; len(got) != 1 || got[0].Resources[0].Hash != "sha256:prod-proxy" || binding.Labels != nil {
		t.Errorf("got %+v", binding)
	}
	set := &addonsv1.ClusterResourceSet{
		Spec: addonsv1.ClusterResourceSetSpec{Resources: []addonsv1.ResourceRef{{Kind: "Secret", Name: "a"}}},
		Status: addonsv1.ClusterResourceSetStatus{Conditions: []metav1.Condition{
			{Type: "x"}, {Type: addonsv1.ClusterResourceSetResourcesAppliedCondition, Message: "%"},
		}},
	}
	ClusterResourceSet(set)
	if len(set.Spec.Resources) != 1 || len(set.Status.Conditions) != 1 || set.Status.Conditions[0].Message != "%" {
		t.Errorf("got %+v", set)
	}
}
