package world_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// inventory is that of clusterctl: version by type of provider, or why it cannot be read.
type inventory struct {
	client.Reader

	providers [][2]string
	err       error
}

func (i inventory) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	items, _ := list.(*unstructured.UnstructuredList)
	for _, provider := range i.providers {
		items.Items = append(items.Items, unstructured.Unstructured{Object: map[string]any{"type": provider[0], "version": provider[1]}})
	}
	return i.err
}

func TestClusterAPIVersion_IsThatOfTheCoreProvider(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		inventory inventory
		want      string
		err       error
	}{
		"beside others":    {inventory{providers: [][2]string{{"BootstrapProvider", "v1.13.0"}, {"CoreProvider", "v1.14.2"}}}, "v1.14.2", nil},
		"others alone":     {inventory{providers: [][2]string{{"BootstrapProvider", "v1.13.0"}}}, "", nil},
		"no inventory":     {inventory{err: &meta.NoKindMatchError{}}, "", nil},
		"a removed one":    {inventory{err: apierrors.NewNotFound(schema.GroupResource{}, "")}, "", nil},
		"a request failed": {inventory{err: refused}, "", refused},
	} {
		got, err := world.ClusterAPIVersion(t.Context(), test.inventory)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
