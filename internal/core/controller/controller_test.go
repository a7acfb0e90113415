package controller

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

func TestIsNoRecord_SkipsNothingThatADecisionReads(t *testing.T) {
	t.Parallel()
	set := func(key, value string) func(*clusterv1.Cluster) {
		return func(c *clusterv1.Cluster) {
			c.Annotations = maps.Clone(c.Annotations)
			if c.Annotations[key] = value; value == "" {
				delete(c.Annotations, key)
			}
		}
	}
	and := func(edit func(*clusterv1.Cluster)) func(*clusterv1.Cluster) { // without the record nothing is compared
		return func(c *clusterv1.Cluster) {
			set(contract.AnnotationMachinesBehind, "b")(c)
			edit(c)
		}
	}
	for name, row := range map[string]struct {
		edit func(*clusterv1.Cluster)
		want bool
	}{
		"a resync":               {func(c *clusterv1.Cluster) { c.ResourceVersion = "1" }, true},
		"nothing that is cached": {func(*clusterv1.Cluster) {}, true},
		"the record is written":  {set(contract.AnnotationMachinesBehind, "b"), false},
		"the record is removed":  {set(contract.AnnotationMachinesBehind, ""), true},
		"a user's annotation":    {and(set(contract.AnnotationRollout, "Immediate")), true},
		"the spec":               {and(func(c *clusterv1.Cluster) { c.Spec.ControlPlaneEndpoint.Host = "a" }), true},
		"a label":                {and(func(c *clusterv1.Cluster) { c.Labels = map[string]string{"a": "b"} }), true},
		"a condition":            {and(func(c *clusterv1.Cluster) { c.Status.Conditions = []metav1.Condition{{Type: "A"}} }), true},
		"it is being deleted":    {and(func(c *clusterv1.Cluster) { c.DeletionTimestamp = &metav1.Time{} }), true},
	} {
		before := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1", Annotations: map[string]string{contract.AnnotationMachinesBehind: "a"},
		}}
		now := before.DeepCopy()
		now.ResourceVersion = "2"
		row.edit(now)
		if got := isNoRecord(event.UpdateEvent{ObjectOld: before, ObjectNew: now}); got != row.want {
			t.Errorf("%s: %t, want %t", name, got, row.want)
		}
	}
}
