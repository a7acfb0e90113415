package lookup_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
)

// controlPlanes is a cache or an API server with objects of one kind. It selects by label and index.
type controlPlanes struct {
	client.Reader
	kind  string // of the objects
	items []metav1.PartialObjectMetadata
	asked int
}

func (c *controlPlanes) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.asked++
	asked := (&client.ListOptions{}).ApplyOptions(options)
	for _, item := range c.items {
		index := fields.Set{lookup.IndexLabel: item.Labels[clusterv1.ClusterNameLabel]}
		if item.Namespace != asked.Namespace || !asked.LabelSelector.Matches(labels.Set(item.Labels)) ||
			asked.FieldSelector != nil && !asked.FieldSelector.Matches(index) {
			continue
		}
		switch found := list.(type) {
		case *metav1.PartialObjectMetadataList:
			if found.Kind == c.kind+"List" {
				found.Items = append(found.Items, item)
			}
		case *kinds.KubeadmConfigList:
			if c.kind == "KubeadmConfig" {
				found.Items = append(found.Items, kinds.KubeadmConfig{ObjectMeta: item.ObjectMeta})
			}
		}
	}
	return nil
}

func TestBegun_AsksTheAPIServerBeforeItSaysNo(t *testing.T) {
	t.Parallel()
	config := func(namespace, cluster string, more ...string) metav1.ObjectMeta {
		object := metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
		for _, label := range more {
			object.Labels[label] = ""
		}
		return object
	}
	own := config("team", "one", clusterv1.MachineControlPlaneLabel)
	for name, test := range map[string]struct {
		kind         string // of what the cache knows
		cached, live metav1.ObjectMeta
		want         bool
		asked        int
	}{
		"the cache knows the KubeadmConfig": {"KubeadmConfig", own, metav1.ObjectMeta{}, true, 0},
		"the cache knows the Machine":       {"Machine", own, metav1.ObjectMeta{}, true, 0},
		"the cache is behind":               {"KubeadmConfig", config("team", "one"), own, true, 1},
		"there is only that of a worker":    {"KubeadmConfig", config("team", "one"), config("team", "one"), false, 1},
		"there is a Machine of a worker":    {"Machine", config("team", "one"), metav1.ObjectMeta{}, false, 1},
		"there is that of another Cluster": {
			"KubeadmConfig", config("team", "two", clusterv1.MachineControlPlaneLabel), config("team", "two", clusterv1.MachineControlPlaneLabel), false, 1,
		},
		"there is that of another team": {
			"KubeadmConfig", config("other", "one", clusterv1.MachineControlPlaneLabel), config("other", "one", clusterv1.MachineControlPlaneLabel), false, 1,
		},
	} {
		cached := &controlPlanes{kind: test.kind, items: []metav1.PartialObjectMetadata{{ObjectMeta: test.cached}}}
		live := &controlPlanes{kind: "KubeadmConfig", items: []metav1.PartialObjectMetadata{{ObjectMeta: test.live}}}
		got, err := lookup.ControlPlanes{Cached: cached, Live: live}.Begun(t.Context(), "team", "one")
		if err != nil || got != test.want || live.asked != test.asked {
			t.Errorf("%s: %v after %d requests (%v), want %v after %d", name, got, live.asked, err, test.want, test.asked)
		}
	}
}
