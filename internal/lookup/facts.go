package lookup

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

// InfrastructureClusters reads infrastructure cluster objects, each when a Cluster refers to it first and when the
// Cluster is provisioned, and never again. There are as many kinds as providers, and no watch on any.
type InfrastructureClusters struct {
	// Cached reads generated Secrets from a cache. They hold what earlier processes have read. Nil is that there are
	// none.
	Cached client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Mapper knows the kinds of the API server.
	Mapper meta.RESTMapper

	mutex sync.Mutex
	known map[types.NamespacedName]infrastructure.Memory // by Cluster
}

// Facts implements resolve.InfrastructureReader. A kind that cannot be read, because it is in another API group than
// those of Cluster API's providers or is not installed, tells what follows from its name.
func (i *InfrastructureClusters) Facts(ctx context.Context, cluster intent.Cluster) (infrastructure.Memory, error) {
	reference := cluster.Infrastructure
	fresh := infrastructure.Memory{
		Group: reference.Group, Kind: reference.Kind, Name: reference.Name, Provisioned: cluster.Provisioned,
		Facts: infrastructure.Of(reference.Kind),
	}
	if reference.Name == "" || !infrastructure.IsRead(reference.Kind) {
		return fresh, nil
	}
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	i.mutex.Lock()
	known, found := i.known[key]
	i.mutex.Unlock()
	if found && isCurrent(known, fresh) {
		return known, nil
	}
	if known, found = i.stored(ctx, cluster); !found || !isCurrent(known, fresh) {
		exists, err := i.read(ctx, cluster.Namespace, &fresh)
		if err != nil || !exists {
			return fresh, err
		}
		known = fresh
	}
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.known == nil {
		i.known = map[types.NamespacedName]infrastructure.Memory{}
	}
	i.known[key] = known
	return known, nil
}

// Forget drops the facts about a Cluster.
func (i *InfrastructureClusters) Forget(cluster types.NamespacedName) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	delete(i.known, cluster)
}

// isCurrent reports whether the object need not be read again to know what a fresh memory would.
func isCurrent(known, fresh infrastructure.Memory) bool {
	return known.Group == fresh.Group && known.Kind == fresh.Kind && known.Name == fresh.Name &&
		(known.Provisioned || !fresh.Provisioned)
}

// stored returns the facts in the generated Secret of a Cluster.
func (i *InfrastructureClusters) stored(ctx context.Context, cluster intent.Cluster) (infrastructure.Memory, bool) {
	if i.Cached == nil {
		return infrastructure.Memory{}, false
	}
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: intent.GeneratedSecretName(cluster.Name)}
	if err := i.Cached.Get(ctx, name, secret); err != nil || Taken(name, cluster.Name, secret.Labels) != "" {
		return infrastructure.Memory{}, false
	}
	return infrastructure.Decode(secret.Data[contract.KeyInfrastructure])
}

// read asks the API server, and completes m.
func (i *InfrastructureClusters) read(ctx context.Context, namespace string,
	m *infrastructure.Memory,
) (exists bool, err error) {
	mapping, err := i.Mapper.RESTMapping(schema.GroupKind{Group: m.Group, Kind: m.Kind})
	if meta.IsNoMatchError(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking up kind %s: %w", m.Kind, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	name := types.NamespacedName{Namespace: namespace, Name: m.Name}
	switch err := i.Live.Get(ctx, name, object); {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading %s %s: %w", m.Kind, name, err)
	}
	m.Facts = infrastructure.Read(m.Kind, m.Name, object.Object)
	return true, nil
}
