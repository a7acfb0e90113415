package webhook

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// maxLive bounds how many Clusters or pools of a namespace are read from the API server. One is up to 10 kB.
const maxLive = 250

// fresh reads from a cache, and what the cache does not have from the API server: it is milliseconds old, or there is
// none. What it reads is not changed: it shares memory with the cache.
type fresh struct{ Cached, Live client.Reader }

// Get implements client.Reader.
func (f fresh) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	if f.Cached.Get(ctx, key, into, append(o, client.UnsafeDisableDeepCopy)...) == nil {
		return nil
	}
	ctrl.LoggerFrom(ctx).V(4).Info("Reading object that the cache does not have", "object", key)
	return f.Live.Get(ctx, key, into, o...) //nolint:wrapcheck // it is the reader
}

// List implements client.Reader. The API server has no indexes: it returns maxLive objects of the namespace, and of its
// Clusters those with the label, because a new one matters only with that. Of more pools none is returned: one that is
// missing could be of another Cluster.
func (f fresh) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if f.Cached.List(ctx, list, o...) == nil && meta.LenList(list) > 0 {
		return nil
	}
	requested := (&client.ListOptions{}).ApplyOptions(o)
	requested.FieldSelector, requested.Limit, requested.UnsafeDisableDeepCopy = nil, maxLive, nil
	_, clusters := list.(*clusterv1.ClusterList)
	if clusters {
		client.MatchingLabels{contract.LabelEnabled: contract.LabelEnabledValue}.ApplyToList(requested)
	}
	err := f.Live.List(ctx, list, requested)
	if err == nil && !clusters && list.GetContinue() != "" {
		err = meta.SetList(list, nil)
	}
	return err //nolint:wrapcheck // it is the reader
}
