package controller

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configs is an API server with KubeadmConfigs. It selects by label, as it is asked to.
type configs struct {
	client.Reader
	items []metav1.PartialObjectMetadata
	asked int
}

func (c *configs) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.asked++
	asked := (&client.ListOptions{}).ApplyOptions(options)
	found := list.(*metav1.PartialObjectMetadataList) //nolint:forcetypeassert // nothing else is read
	for _, item := range c.items {
		if item.Namespace == asked.Namespace && asked.LabelSelector.Matches(labels.Set(item.Labels)) {
			found.Items = append(found.Items, item)
		}
	}
	return nil
}

func TestTheAPIServerIsAskedWhetherTheFirstMachineExists(t *testing.T) {
	t.Parallel()
	config := func(namespace, cluster string, more ...string) metav1.ObjectMeta {
		object := metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
		for _, label := range more {
			object.Labels[label] = ""
		}
		return object
	}
	for name, test := range map[string]struct {
		cached, live metav1.ObjectMeta
		want         bool
		asked        int
	}{
		"the cache knows":                  {config("team", "one", clusterv1.MachineControlPlaneLabel), metav1.ObjectMeta{}, true, 0},
		"the cache is behind":              {config("team", "one"), config("team", "one", clusterv1.MachineControlPlaneLabel), true, 1},
		"there is only that of a worker":   {config("team", "one"), config("team", "one"), false, 1},
		"there is that of another Cluster": {config("team", "one"), config("team", "two", clusterv1.MachineControlPlaneLabel), false, 1},
		"there is that of another team":    {config("team", "one"), config("other", "one", clusterv1.MachineControlPlaneLabel), false, 1},
	} {
		live := &configs{items: []metav1.PartialObjectMetadata{{ObjectMeta: test.live}}}
		r := &reconciliation{Controller: &Controller{Live: live}}
		r.view.Namespace, r.view.Name = "team", "one"
		r.listed = &bootstrapv1.KubeadmConfigList{Items: []bootstrapv1.KubeadmConfig{{ObjectMeta: test.cached}}}
		got, err := r.isBegun(t.Context())
		if err != nil || got != test.want || live.asked != test.asked {
			t.Errorf("%s: %v after %d requests (%v), want %v after %d", name, got, live.asked, err, test.want, test.asked)
		}
	}
}
