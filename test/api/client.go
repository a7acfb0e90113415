package api

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
)

// Client is a client of package kinds, with a trimmed form of the objects, in front of one that has Cluster API's own
// types.
type Client struct {
	client.Client

	scheme *runtime.Scheme
}

// NewClient returns a client for the program in front of one of a test.
func NewClient(stored client.Client) (*Client, error) {
	scheme, err := NewProgramScheme()
	return &Client{stored, scheme}, err
}

// NewProgramScheme returns a scheme with the program's kinds.
func NewProgramScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(
		clientgoscheme.AddToScheme(scheme), addonsv1.AddToScheme(scheme), kinds.AddToScheme(scheme),
	)
}

// own returns an empty object of Cluster API's own type for one of package kinds, nil for other kinds.
func (c *Client) own(object runtime.Object) (runtime.Object, error) {
	of, _, err := c.scheme.ObjectKinds(object)
	if _, untyped := object.(runtime.Unstructured); untyped || err != nil {
		return nil, nil //nolint:nilerr,nilnil // it is no typed object
	}
	own, err := c.Client.Scheme().New(of[0])
	if err != nil || fmt.Sprintf("%T", own) == fmt.Sprintf("%T", object) {
		return nil, err
	}
	return own, nil
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	own, err := c.own(into)
	if err != nil || own == nil {
		return c.Client.Get(ctx, key, into, options...)
	}
	if err := c.Client.Get(ctx, key, own.(client.Object), options...); err != nil {
		return err
	}
	return trimmed(own, into)
}

func trimmed(from, into any) error {
	if err := Into(from, into); err != nil {
		return err
	}
	_, err := kinds.Trim(into)
	return err
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	own, err := c.own(into)
	if err != nil || own == nil {
		return c.Client.List(ctx, into, options...)
	}
	if err := c.Client.List(ctx, own.(client.ObjectList), options...); err != nil {
		return err
	}
	if err := Into(own, into); err != nil {
		return err
	}
	return meta.EachListItem(into, func(item runtime.Object) error {
		_, err := kinds.Trim(item)
		return err
	})
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption,
) error {
	return c.patch(object, patch, func(object client.Object, patch client.Patch) error {
		return c.Client.Patch(ctx, object, patch, options...)
	})
}

func (c *Client) patch(object client.Object, patch client.Patch, send func(client.Object, client.Patch) error) error {
	own, err := c.own(object)
	if err != nil || own == nil {
		return send(object, patch)
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	stored := own.(client.Object)
	stored.SetNamespace(object.GetNamespace())
	stored.SetName(object.GetName())
	stored.SetResourceVersion(object.GetResourceVersion())
	if err := send(stored, client.RawPatch(patch.Type(), data)); err != nil {
		return err
	}
	return Into(stored, object)
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return status{c.Client.Status(), c} }

type status struct {
	client.SubResourceWriter

	client *Client
}

// Patch implements client.SubResourceWriter.
func (s status) Patch(ctx context.Context, object client.Object, patch client.Patch,
	options ...client.SubResourcePatchOption,
) error {
	return s.client.patch(object, patch, func(object client.Object, patch client.Patch) error {
		return s.SubResourceWriter.Patch(ctx, object, patch, options...)
	})
}

// Scheme implements client.Client.
func (c *Client) Scheme() *runtime.Scheme { return c.scheme }

// GroupVersionKindFor implements client.Client.
func (c *Client) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, c.scheme)
}

// Index returns an index of Cluster API's own types that has the values of one of package kinds.
func (c *Client) Index(object client.Object, values client.IndexerFunc) (client.Object, client.IndexerFunc, error) {
	own, err := c.own(object)
	if err != nil || own == nil {
		return object, values, err
	}
	return own.(client.Object), func(stored client.Object) []string {
		shown := object.DeepCopyObject().(client.Object)
		if err := trimmed(stored, shown); err != nil {
			panic(err)
		}
		return values(shown)
	}, nil
}
