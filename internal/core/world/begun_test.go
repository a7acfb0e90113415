package world_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// counted counts the lists that an API server is asked for.
type counted struct {
	client.Reader

	lists int
}

func (c *counted) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, list, options...)
}

// objects is a world with objects of a kind, by their metadata.
func objects(t *testing.T, kind string, all ...metav1.ObjectMeta) *counted {
	t.Helper()
	reader, err := world.Of(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, metadata := range all {
		switch kind {
		case "Machine":
			reader.Add(&clusterv1.Machine{ObjectMeta: metadata})
		case "KubeadmConfig":
			reader.Add(&bootstrapv1.KubeadmConfig{ObjectMeta: metadata})
		}
	}
	return &counted{Reader: reader}
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
		cached, live := objects(t, test.kind, test.cached), objects(t, "KubeadmConfig", test.live)
		got, err := world.ControlPlanes{Cached: cached, Live: live}.Begun(t.Context(), "team", "one")
		if err != nil || got != test.want || live.lists != test.asked {
			t.Errorf("%s: %v after %d requests (%v), want %v after %d", name, got, live.lists, err, test.want, test.asked)
		}
	}
}
