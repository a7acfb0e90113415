package caches

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/slim"
)

// New returns a cache that keeps Cluster API's kinds as types of package slim, and shows them to readers, handlers and
// indexes as what they are. It implements cache.NewCacheFunc.
//
// Its indexes need a namespace: each is kept once and not once more for all namespaces.
func New(config *rest.Config, options cache.Options) (cache.Cache, error) {
	options.Scheme = runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, addonsv1.AddToScheme} {
		if err := add(options.Scheme); err != nil {
			return nil, fmt.Errorf("building scheme: %w", err)
		}
	}
	slim := &slimmed{kinds: kinds()}
	for _, k := range slim.kinds {
		k.addTo(options.Scheme)
	}
	var err error
	if slim.Cache, err = cache.New(config, options); err != nil {
		return nil, fmt.Errorf("making cache: %w", err)
	}
	return slim, nil
}

// kind is a kind that is kept as a type of package slim.
type kind struct {
	of     schema.GroupVersionKind
	object client.Object
	list   client.ObjectList
	// kept is a new object of the type that is kept.
	kept func() client.Object
	// whole returns the whole object of one that is kept.
	whole func(client.Object) client.Object
	addTo func(*runtime.Scheme)
	get   func(ctx context.Context, from client.Reader, key client.ObjectKey, into client.Object,
		options ...client.GetOption) error
	fill func(ctx context.Context, from client.Reader, into client.ObjectList, options ...client.ListOption) error
}

// kinds returns the kinds of which a Cluster has most objects.
func kinds() []kind {
	return []kind{
		kindOf[slim.Cluster](clusterv1.GroupVersion, "Cluster",
			func(l *clusterv1.ClusterList) *[]clusterv1.Cluster { return &l.Items }),
		kindOf[slim.Deployment](clusterv1.GroupVersion, "MachineDeployment",
			func(l *clusterv1.MachineDeploymentList) *[]clusterv1.MachineDeployment { return &l.Items }),
		kindOf[slim.Pool](clusterv1.GroupVersion, "MachinePool",
			func(l *clusterv1.MachinePoolList) *[]clusterv1.MachinePool { return &l.Items }),
		kindOf[slim.ControlPlane](controlplanev1.GroupVersion, "KubeadmControlPlane",
			func(l *controlplanev1.KubeadmControlPlaneList) *[]controlplanev1.KubeadmControlPlane { return &l.Items }),
		kindOf[slim.Template](bootstrapv1.GroupVersion, "KubeadmConfigTemplate",
			func(l *bootstrapv1.KubeadmConfigTemplateList) *[]bootstrapv1.KubeadmConfigTemplate { return &l.Items }),
		kindOf[slim.Config](bootstrapv1.GroupVersion, "KubeadmConfig",
			func(l *bootstrapv1.KubeadmConfigList) *[]bootstrapv1.KubeadmConfig { return &l.Items }),
	}
}

// kindOf returns the kind whose whole objects are W, in lists L, and kept as K.
func kindOf[K, W, L any, PK interface {
	*K
	slim.Kept
	Into(*W)
}, PW interface {
	*W
	client.Object
}, PL interface {
	*L
	client.ObjectList
}](version schema.GroupVersion, name string, items func(PL) *[]W) kind {
	return kind{
		of: version.WithKind(name), object: PW(new(W)), list: PL(new(L)),
		kept: func() client.Object { return PK(new(K)) },
		whole: func(kept client.Object) client.Object {
			whole := new(W)
			kept.(PK).Into(whole) //nolint:forcetypeassert // one informer has one type
			return PW(whole)
		},
		addTo: func(scheme *runtime.Scheme) {
			scheme.AddKnownTypeWithName(version.WithKind(name), PK(new(K)))
			scheme.AddKnownTypeWithName(version.WithKind(name+"List"), &slim.List[K, PK]{})
			metav1.AddToGroupVersion(scheme, version)
		},
		get: func(ctx context.Context, from client.Reader, key client.ObjectKey, into client.Object,
			options ...client.GetOption,
		) error {
			kept := PK(new(K))
			if err := from.Get(ctx, key, kept, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
				return err
			}
			kept.Into(into.(PW)) //nolint:forcetypeassert // kinds are found by this type
			return nil
		},
		fill: func(ctx context.Context, from client.Reader, into client.ObjectList, options ...client.ListOption) error {
			kept := &slim.List[K, PK]{}
			if err := from.List(ctx, kept, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
				return err
			}
			whole := make([]W, len(kept.Items))
			for i := range kept.Items {
				PK(&kept.Items[i]).Into(&whole[i])
			}
			*items(into.(PL)) = whole //nolint:forcetypeassert // as above
			return nil
		},
	}
}

// slimmed is a cache of slim objects that shows whole ones.
type slimmed struct {
	cache.Cache

	kinds []kind
}

func (c *slimmed) kindOf(object client.Object) (kind, bool) {
	for _, k := range c.kinds {
		if reflect.TypeOf(k.object) == reflect.TypeOf(object) {
			return k, true
		}
	}
	return kind{}, false
}

func (c *slimmed) kindOfList(list client.ObjectList) (kind, bool) {
	for _, k := range c.kinds {
		if reflect.TypeOf(k.list) == reflect.TypeOf(list) {
			return k, true
		}
	}
	return kind{}, false
}

// Get implements client.Reader.
func (c *slimmed) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	if k, ok := c.kindOf(into); ok {
		return k.get(ctx, c.Cache, key, into, options...)
	}
	return c.Cache.Get(ctx, key, into, options...)
}

// List implements client.Reader.
func (c *slimmed) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	var all client.ListOptions
	if all.ApplyOptions(options); all.FieldSelector != nil && all.Namespace == "" {
		return errors.New("an index finds objects of one namespace: use client.InNamespace")
	}
	if k, ok := c.kindOfList(into); ok {
		return k.fill(ctx, c.Cache, into, options...)
	}
	return c.Cache.List(ctx, into, options...)
}

// GetInformer implements cache.Informers.
func (c *slimmed) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption,
) (cache.Informer, error) {
	k, ok := c.kindOf(object)
	if !ok {
		return c.Cache.GetInformer(ctx, object, options...)
	}
	inner, err := c.Cache.GetInformer(ctx, k.kept(), options...)
	return informer{inner, k.whole}, err
}

// GetInformerForKind implements cache.Informers.
func (c *slimmed) GetInformerForKind(ctx context.Context, of schema.GroupVersionKind,
	options ...cache.InformerGetOption,
) (cache.Informer, error) {
	for _, k := range c.kinds {
		if k.of == of {
			return c.GetInformer(ctx, k.object, options...)
		}
	}
	return c.Cache.GetInformerForKind(ctx, of, options...)
}

// RemoveInformer implements cache.Informers.
func (c *slimmed) RemoveInformer(ctx context.Context, object client.Object) error {
	if k, ok := c.kindOf(object); ok {
		object = k.kept()
	}
	return c.Cache.RemoveInformer(ctx, object)
}

// IndexField implements client.FieldIndexer. The cache of controller-runtime looks for an index of this name, and for
// values with their namespace.
func (c *slimmed) IndexField(ctx context.Context, object client.Object, field string, values client.IndexerFunc) error {
	found, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("getting informer: %w", err)
	}
	return found.AddIndexers(toolscache.Indexers{"field:" + field: func(object any) ([]string, error) {
		o, ok := object.(client.Object)
		if !ok {
			return nil, fmt.Errorf("indexing %T", object)
		}
		found := values(o)
		for i, value := range found {
			found[i] = o.GetNamespace() + "/" + value
		}
		return found, nil
	}})
}

// informer shows whole objects to handlers and indexes.
type informer struct {
	cache.Informer

	whole func(client.Object) client.Object
}

// AddEventHandler implements cache.Informer.
func (i informer) AddEventHandler(handler toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(events{handler, i})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(events{handler, i}, period)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler,
	options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(events{handler, i}, options)
}

// AddIndexers implements cache.Informer.
func (i informer) AddIndexers(indexers toolscache.Indexers) error {
	ofKept := toolscache.Indexers{}
	for name, values := range indexers {
		ofKept[name] = func(object any) ([]string, error) { return values(i.show(object)) }
	}
	return i.Informer.AddIndexers(ofKept)
}

// show returns the whole object of one that is kept, also if its deletion was missed.
func (i informer) show(object any) any {
	switch o := object.(type) {
	case toolscache.DeletedFinalStateUnknown:
		o.Obj = i.show(o.Obj)
		return o
	case slim.Kept:
		return i.whole(o)
	}
	return object
}

// events shows whole objects to a handler.
type events struct {
	handler toolscache.ResourceEventHandler
	informer
}

// OnAdd implements toolscache.ResourceEventHandler.
func (e events) OnAdd(object any, initial bool) { e.handler.OnAdd(e.show(object), initial) }

// OnUpdate implements toolscache.ResourceEventHandler. A resync has the same object twice.
func (e events) OnUpdate(before, now any) {
	whole := e.show(now)
	if before == now {
		e.handler.OnUpdate(whole, whole)
		return
	}
	e.handler.OnUpdate(e.show(before), whole)
}

// OnDelete implements toolscache.ResourceEventHandler.
func (e events) OnDelete(object any) { e.handler.OnDelete(e.show(object)) }
