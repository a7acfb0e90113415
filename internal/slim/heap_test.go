package slim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/slim"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// number stands in objects for the number of a Cluster.
const number = "00000"

// BenchmarkHeap reports the live heap of the objects of 2,000 Clusters, each a control plane and three pools as Cluster
// API and the product leave them, for each object.
func BenchmarkHeap(b *testing.B) {
	const clusters, pools = 2000, 3
	all := objects(b)
	makers := []func() slim.Kept{
		func() slim.Kept { return &slim.Cluster{} }, func() slim.Kept { return &slim.ControlPlane{} },
		func() slim.Kept { return &slim.Template{} }, func() slim.Kept { return &slim.Deployment{} },
	}
	of := []int{0, 1, 2, 2, 2, 3, 3, 3}
	for _, kind := range []struct {
		name     string
		from, to int
	}{
		{"all", 0, len(all)},
		{"Cluster", 0, 1},
		{"KubeadmControlPlane", 1, 2},
		{"KubeadmConfigTemplate", 2, 2 + pools},
		{"MachineDeployment", 2 + pools, len(all)},
	} {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				kept := make([]slim.Kept, 0, clusters*(kind.to-kind.from))
				before := live()
				for i := range clusters {
					for at := kind.from; at < kind.to; at++ {
						text := strings.ReplaceAll(all[at], number, fmt.Sprintf("%05d", i))
						object := makers[of[at]]()
						if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), object); err != nil {
							b.Fatal(err)
						}
						object.Keep()
						kept = append(kept, object)
					}
				}
				b.ReportMetric((live()-before)/clusters, "B/Cluster")
				runtime.KeepAlive(kept)
			}
		})
	}
}

// live returns the bytes that are in use.
func live() float64 {
	for range 3 { // the last drop what handles are not used any more
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// objects returns the objects of a Cluster with three pools as JSON: the Cluster, the control plane, the templates of
// the pools, the pools.
func objects(b *testing.B) []string {
	b.Helper()
	const name = "cluster-" + number
	c := vocabulary.NewClassic("default", name, "machines")
	request, err := hookrequests.Generate(hookrequests.Options{Pools: 1})
	if err != nil {
		b.Fatal(err)
	}
	var (
		controlPlane controlplanev1.KubeadmControlPlaneTemplate
		worker       bootstrapv1.KubeadmConfigTemplate
		ours         bootstrapv1.KubeadmConfigSpec
	)
	text, err := os.ReadFile("../patch/testdata/reference.yaml")
	if err != nil {
		b.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), "test-proxy-files", name+"-proxy-files"))
	for into, text := range map[any][]byte{
		&controlPlane: request.Items[1].Object.Raw, &worker: request.Items[3].Object.Raw, &ours: text,
	} {
		if err := yaml.Unmarshal(text, into); err != nil {
			b.Fatal(err)
		}
	}
	patched := func(spec bootstrapv1.KubeadmConfigSpec) bootstrapv1.KubeadmConfigSpec {
		spec.Files = slices.Concat(ours.Files, spec.Files)
		spec.PreKubeadmCommands = slices.Concat(ours.PreKubeadmCommands, spec.PreKubeadmCommands)
		spec.PostKubeadmCommands = slices.Concat(ours.PostKubeadmCommands, spec.PostKubeadmCommands)
		return spec
	}
	c.ControlPlane.Spec.KubeadmConfigSpec = patched(controlPlane.Spec.Template.Spec.KubeadmConfigSpec)
	c.Cluster.Status.Conditions = []metav1.Condition{condition(contract.ConditionProxyConfigured)}
	c.Cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	c.ControlPlane.Status.Conditions = []metav1.Condition{condition(clusterv1.PausedCondition), condition("Available")}
	c.ControlPlane.Status.Replicas, c.ControlPlane.Status.Version = new(int32(3)), "v1.36.3" //nolint:staticcheck // the field of the contract
	all := []metav1.Object{c.Cluster, c.ControlPlane}
	for i := range 3 {
		c.Template.Name = fmt.Sprintf("%s-md-%d", name, i)
		c.Template.Spec.Template.Spec, c.Template.Spec.Template.ObjectMeta = patched(worker.Spec.Template.Spec), clusterv1.ObjectMeta{}
		all = append(all, c.Template.DeepCopy())
	}
	for i := range 3 {
		c.Deployment.Name = fmt.Sprintf("%s-md-%d", name, i)
		c.Deployment.Spec.Template.Spec = vocabulary.MachineSpec(name, "machines", "KubeadmConfigTemplate", c.Deployment.Name)
		c.Deployment.Annotations = map[string]string{"machinedeployment.clusters.x-k8s.io/revision": "1"}
		all = append(all, c.Deployment.DeepCopy())
	}
	texts := make([]string, 0, len(all))
	for i, object := range all {
		complete(object, name, i)
		text, err := json.Marshal(object)
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

func condition(kind string) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: "Configured", ObservedGeneration: 2,
		Message: "5 objects carry the proxy settings of Secret operators/proxy", LastTransitionTime: metav1.Unix(1_800_000_000, 0),
	}
}

// complete sets the metadata that an API server and Cluster API set on the object of a number.
func complete(object metav1.Object, cluster string, i int) {
	owner := metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster,
		UID: "0c0ffee0-" + "0000-4000-aaaa-0000000" + number,
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: cluster}
	switch object.(type) {
	case *clusterv1.Cluster:
		labels[contract.LabelEnabled] = contract.LabelEnabledValue
		object.SetFinalizers([]string{clusterv1.ClusterFinalizer})
	case *controlplanev1.KubeadmControlPlane:
		owner.Controller, owner.BlockOwnerDeletion = new(true), new(true)
		object.SetFinalizers([]string{controlplanev1.KubeadmControlPlaneFinalizer})
		object.SetOwnerReferences([]metav1.OwnerReference{owner})
	case *clusterv1.MachineDeployment:
		object.SetFinalizers([]string{clusterv1.MachineDeploymentFinalizer})
		object.SetOwnerReferences([]metav1.OwnerReference{owner})
	default:
		object.SetOwnerReferences([]metav1.OwnerReference{owner})
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	object.SetAnnotations(annotations)
	object.SetLabels(labels)
	object.SetUID(types.UID(fmt.Sprintf("%08x-0000-4000-aaaa-0000000%s", i, number)))
	object.SetResourceVersion(fmt.Sprintf("1%d%s", i, number))
	object.SetGeneration(2)
	object.SetCreationTimestamp(metav1.Unix(1_800_000_000, 0))
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`)}})
}
