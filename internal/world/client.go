package world

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Discarding is a client that reads from a Reader and discards what is written.
type Discarding struct {
	client.Client // for methods that nothing calls

	Reader *Reader
}

// Get implements client.Client.
func (d Discarding) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	return d.Reader.Get(ctx, key, into, o...)
}

// List implements client.Client.
func (d Discarding) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return d.Reader.List(ctx, list, o...)
}

// GroupVersionKindFor implements client.Client.
func (d Discarding) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, d.Reader.scheme) //nolint:wrapcheck // it is the client
}

// Create implements client.Client.
func (Discarding) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// Update implements client.Client.
func (Discarding) Update(context.Context, client.Object, ...client.UpdateOption) error { return nil }

// Delete implements client.Client.
func (Discarding) Delete(context.Context, client.Object, ...client.DeleteOption) error { return nil }

// Patch implements client.Client.
func (Discarding) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}
