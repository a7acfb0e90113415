package settings_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// TestClusterOf_ReadsStates of a Cluster that has none but those of the change.
func TestClusterOf_ReadsStates(t *testing.T) {
	t.Parallel()
	label := func(value string) func(*clusterv1.Cluster) {
		return func(c *clusterv1.Cluster) { c.Labels = map[string]string{contract.LabelEnabled: value} }
	}
	provisioned := func(value bool) func(*clusterv1.Cluster) {
		return func(c *clusterv1.Cluster) { c.Status.Initialization.InfrastructureProvisioned = &value }
	}
	type states struct{ topology, enabled, unclear, paused, deleted, provisioned bool }
	for name, test := range map[string]struct {
		change func(*clusterv1.Cluster)
		want   states
	}{
		"none":               {func(*clusterv1.Cluster) {}, states{}},
		"a topology":         {func(c *clusterv1.Cluster) { c.Spec.Topology.ClassRef.Name = "class" }, states{topology: true}},
		"enabled":            {label("true"), states{enabled: true}},
		"disabled":           {label("false"), states{}},
		"unclear":            {label("yes"), states{unclear: true}},
		"paused":             {func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }, states{paused: true}},
		"not paused":         {func(c *clusterv1.Cluster) { c.Spec.Paused = new(false) }, states{}},
		"paused another way": {func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, states{paused: true}},
		"being deleted":      {func(c *clusterv1.Cluster) { c.DeletionTimestamp = new(metav1.Now()) }, states{deleted: true}},
		"provisioned":        {provisioned(true), states{provisioned: true}},
		"not provisioned":    {provisioned(false), states{}},
	} {
		cluster := &clusterv1.Cluster{}
		test.change(cluster)
		c := settings.ClusterOf(cluster)
		got := states{c.Topology, c.Enabled, c.Unclear != nil, c.Paused, c.Deleted, c.Provisioned}
		if got != test.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
