package preview

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// snapshot shows a namespace as the controller's cache does, with changed objects in the place of those in it. It lists
// each kind once, and reads live what the controller does not cache. It is for one goroutine.
type snapshot struct {
	changed changedReader
	cached  *world.Reader
	// lists are those by which kinds are read that the controller caches, until they are read.
	lists     map[string]client.ObjectList
	namespace string
}

func newSnapshot(ctx context.Context, api client.Client, namespace string, changed ...client.Object) (
	*snapshot, error,
) {
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	cached, err := world.Of(ctx)
	if err != nil {
		return nil, err
	}
	return &snapshot{
		changed: changedReader{api, cached.Of(changed...)}, cached: cached, namespace: namespace,
		lists: map[string]client.ObjectList{
			"Cluster": &clusterv1.ClusterList{}, "MachineDeployment": &clusterv1.MachineDeploymentList{},
			"MachinePool": &clusterv1.MachinePoolList{}, "Machine": machines, "Secret": &corev1.SecretList{},
			"KubeadmControlPlane":   &controlplanev1.KubeadmControlPlaneList{},
			"KubeadmConfigTemplate": &bootstrapv1.KubeadmConfigTemplateList{}, "KubeadmConfig": &bootstrapv1.KubeadmConfigList{},
		},
	}, nil
}

// of returns the reader of a kind in a namespace, any with "".
func (s *snapshot) of(ctx context.Context, object runtime.Object, namespace string) (client.Reader, error) {
	gvk, err := s.changed.GroupVersionKindFor(object)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	kind := strings.TrimSuffix(gvk.Kind, "List")
	list, known := s.lists[kind]
	switch {
	case !known || namespace != "" && namespace != s.namespace:
		return s.changed, nil
	case list == nil:
		return s.cached, nil
	}
	options := []client.ListOption{client.InNamespace(s.namespace)}
	if kind == "Secret" {
		options = append(options, client.HasLabels{contract.LabelProxySecret})
	}
	if err := s.changed.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind, err)
	}
	s.lists[kind] = nil
	return s.cached, meta.EachListItem(list, func(item runtime.Object) error { //nolint:wrapcheck // it has none
		if object, ok := item.(client.Object); ok {
			_ = s.changed.world.Get(ctx, client.ObjectKeyFromObject(object), object) // most are not changed
			s.cached.Add(object)
		}
		return nil
	})
}

// Get implements client.Reader.
func (s *snapshot) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	from, err := s.of(ctx, into, key.Namespace)
	if err != nil {
		return err
	}
	return from.Get(ctx, key, into, o...) //nolint:wrapcheck // it is the reader
}

// List implements client.Reader.
func (s *snapshot) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	from, err := s.of(ctx, list, "")
	if err != nil {
		return err
	}
	return from.List(ctx, list, o...) //nolint:wrapcheck // it is the reader
}

// changedReader reads from the API server, but for the objects that are changed.
type changedReader struct {
	client.Client

	world *world.Reader
}

// Get implements client.Reader.
func (c changedReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	if _, metadata := into.(*metav1.PartialObjectMetadata); !metadata && c.world.Get(ctx, key, into) == nil {
		return nil
	}
	return c.Client.Get(ctx, key, into, o...) //nolint:wrapcheck // it is the reader
}
