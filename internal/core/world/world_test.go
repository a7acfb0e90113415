package world_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

func of(t *testing.T, objects ...client.Object) *world.Reader {
	t.Helper()
	r, err := world.Of(t.Context(), objects...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func cluster(controlPlane string) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: named("ns", "prod")}
	c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindControlPlane, Name: controlPlane}
	return c
}

func TestReader_ListsByTheControllersIndexes(t *testing.T) {
	t.Parallel()
	r := of(t, cluster("cp"))
	for name, want := range map[string]int{"cp": 1, "other": 0} {
		var found clusterv1.ClusterList
		err := r.List(t.Context(), &found, client.InNamespace("ns"), client.MatchingFields{world.IndexControlPlane: name})
		if err != nil || len(found.Items) != want {
			t.Errorf("%s: %d Clusters, want %d: %v", name, len(found.Items), want, err)
		}
	}
	var found clusterv1.ClusterList
	if err := r.List(t.Context(), &found, client.MatchingFields{"nobody": "cp"}); err == nil {
		t.Error("an index that the controller has not is read")
	}
	if err := r.List(t.Context(), &found, client.InNamespace("another")); err != nil || len(found.Items) != 0 {
		t.Errorf("%d Clusters in another namespace: %v", len(found.Items), err)
	}
}

func TestReader_GivesCopies(t *testing.T) {
	t.Parallel()
	stored := cluster("cp")
	r := of(t, stored)
	got := &clusterv1.Cluster{}
	if err := r.Get(t.Context(), client.ObjectKeyFromObject(stored), got); err != nil {
		t.Fatal(err)
	}
	got.Labels["team"] = "changed"
	if len(stored.Labels) != 0 {
		t.Error("a reader changes the stored object")
	}
	err := r.Get(t.Context(), client.ObjectKey{Namespace: "another", Name: "prod"}, got)
	if !apierrors.IsNotFound(err) {
		t.Errorf("an object of another namespace: %v", err)
	}
}

func TestReader_DoesNotTakeMetadataForAnObject(t *testing.T) {
	t.Parallel()
	machine := world.MachineMetadata()
	machine.ObjectMeta = named("ns", "m")
	machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "prod"}
	full := &clusterv1.Machine{ObjectMeta: named("ns", "full")}
	full.Labels = machine.Labels
	r := of(t, machine)
	if err := r.Get(t.Context(), client.ObjectKeyFromObject(machine), &clusterv1.Machine{}); err == nil {
		t.Error("metadata are read as a Machine, whose other fields would look as if they were empty")
	}
	r = of(t, full)
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	err := r.List(t.Context(), list, client.MatchingFields{world.IndexLabel: "prod"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "full" {
		t.Errorf("metadata of a Machine: %v, %v", list.Items, err)
	}
}
