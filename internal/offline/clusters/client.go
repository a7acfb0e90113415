package clusters

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// discarding is a client that reads from memory and discards what is written.
type discarding struct {
	client.Client // for methods that nothing calls

	reader *world.Reader
}

// Get implements client.Client.
func (d discarding) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	return d.reader.Get(ctx, key, into, o...)
}

// List implements client.Client.
func (d discarding) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return d.reader.List(ctx, list, o...)
}

// GroupVersionKindFor implements client.Client.
func (discarding) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	scheme, err := world.Scheme()
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return apiutil.GVKForObject(object, scheme) //nolint:wrapcheck // it is the client
}

// Create implements client.Client.
func (discarding) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// Update implements client.Client.
func (discarding) Update(context.Context, client.Object, ...client.UpdateOption) error { return nil }

// Delete implements client.Client.
func (discarding) Delete(context.Context, client.Object, ...client.DeleteOption) error { return nil }

// Patch implements client.Client.
func (discarding) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}
