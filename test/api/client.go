package api

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
)

// Client reads what a cache of the program keeps of the objects of a client.
type Client struct{ client.Client }

// NewClient returns a client for the program in front of one of a test.
func NewClient(stored client.Client) *Client { return &Client{stored} }

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, into, options...); err != nil {
		return err
	}
	return trim(into)
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := c.Client.List(ctx, into, options...); err != nil {
		return err
	}
	return meta.EachListItem(into, trim)
}

func trim(object runtime.Object) error {
	_, err := kinds.Trim(object)
	return err
}
