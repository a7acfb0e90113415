package world

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// Facts implements settings.InfrastructureReader. It reads the infrastructure cluster object when the Cluster refers to
// it first and when the Cluster is provisioned, and never again. There are as many kinds as providers, and no watch on
// any. A kind that cannot be read, because it is in another API group than those of Cluster API's providers or is not
// installed, has the facts that follow from its name.
func (m *Memory) Facts(ctx context.Context, cluster settings.Cluster) (infrastructure.Memory, error) {
	reference := cluster.Infrastructure
	fresh := infrastructure.Memory{
		Group: reference.Group, Kind: reference.Kind, Name: reference.Name, Provisioned: cluster.Provisioned,
		Facts: infrastructure.Of(reference.Kind),
	}
	if reference.Name == "" || !infrastructure.IsRead(reference.Kind) {
		return fresh, nil
	}
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	m.mutex.Lock()
	known, found := m.networks[key]
	m.mutex.Unlock()
	if found && isCurrent(known, fresh) {
		return known, nil
	}
	if known, found = m.stored(ctx, cluster); !found || !isCurrent(known, fresh) {
		exists, err := m.readFacts(ctx, cluster.Namespace, &fresh)
		if err != nil || !exists {
			return fresh, err
		}
		known = fresh
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.networks == nil {
		m.networks = map[types.NamespacedName]infrastructure.Memory{}
	}
	m.networks[key] = known
	return known, nil
}

// Forget drops the facts about a Cluster.
func (m *Memory) Forget(cluster types.NamespacedName) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.networks, cluster)
}

// isCurrent reports whether the object need not be read again to know what a fresh memory would.
func isCurrent(known, fresh infrastructure.Memory) bool {
	return known.Group == fresh.Group && known.Kind == fresh.Kind && known.Name == fresh.Name &&
		(known.Provisioned || !fresh.Provisioned)
}

// stored returns the facts in the generated Secret of a Cluster.
func (m *Memory) stored(ctx context.Context, cluster settings.Cluster) (infrastructure.Memory, bool) {
	if m.Cached == nil {
		return infrastructure.Memory{}, false
	}
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: settings.GeneratedSecretName(cluster.Name)}
	if err := m.Cached.Get(ctx, name, secret); err != nil || Taken(name, cluster.Name, secret.Labels) != "" {
		return infrastructure.Memory{}, false
	}
	return infrastructure.Decode(secret.Data[contract.KeyInfrastructure])
}

// readFacts asks the API server, and completes fresh.
func (m *Memory) readFacts(ctx context.Context, namespace string,
	fresh *infrastructure.Memory,
) (exists bool, err error) {
	mapping, err := m.Mapper.RESTMapping(schema.GroupKind{Group: fresh.Group, Kind: fresh.Kind})
	if meta.IsNoMatchError(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking up kind %s: %w", fresh.Kind, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	name := types.NamespacedName{Namespace: namespace, Name: fresh.Name}
	switch err := m.Live.Get(ctx, name, object); {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading %s %s: %w", fresh.Kind, name, err)
	}
	fresh.Facts = infrastructure.Read(fresh.Kind, fresh.Name, object.Object)
	return true, nil
}
