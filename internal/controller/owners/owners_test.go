package owners

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
)

func read[T client.Object](t *testing.T, text string, object T) T {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// noPools is a cache without pools.
type noPools struct{ client.Client }

func (noPools) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestTopology_OldTemplateRequeuesItsCluster(t *testing.T) {
	t.Parallel()
	template := read(t,
		`{metadata: {namespace: ns, labels: {topology.cluster.x-k8s.io/owned: "", cluster.x-k8s.io/cluster-name: one}}}`, &kinds.KubeadmConfigTemplate{})
	f := Finder{Client: noPools{}}
	if diff := cmp.Diff(requestFor("ns", "one"), f.OfTemplate(t.Context(), template)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
