package lookup

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ControlPlanes finds out whether a change of a control plane's bootstrap configuration replaces a Machine.
type ControlPlanes struct {
	// Cached reads KubeadmConfigs and the metadata of Machines from a cache, by IndexLabel.
	Cached client.Reader
	// Live reads from the API server.
	Live client.Reader
}

// Begun reports whether the first Machine of the control plane exists, or at least its KubeadmConfig, which Cluster API
// creates before it. Only the API server may say that it does not: on a busy management cluster the cache may be
// seconds behind, and a change in these seconds would replace the Machine.
func (c ControlPlanes) Begun(ctx context.Context, namespace, cluster string) (bool, error) {
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	configs := &bootstrapv1.KubeadmConfigList{}
	in, ofControlPlane := client.InNamespace(namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel}
	for _, list := range []client.ObjectList{machines, configs} {
		err := c.Cached.List(ctx, list, in, client.MatchingFields{IndexLabel: cluster}, ofControlPlane,
			client.UnsafeDisableDeepCopy)
		if err == nil && (len(machines.Items) > 0 || len(configs.Items) > 0) {
			return true, nil
		}
	}
	live := &metav1.PartialObjectMetadataList{}
	live.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("KubeadmConfigList"))
	if err := c.Live.List(ctx, live, in, client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}, ofControlPlane,
		client.Limit(1)); err != nil {
		return false, fmt.Errorf("listing KubeadmConfigs of the control plane: %w", err)
	}
	return len(live.Items) > 0, nil
}
