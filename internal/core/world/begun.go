package world

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
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

// OfControlPlane selects the objects of control-plane Machines by their label. It never fails: the label is a constant.
var OfControlPlane = sync.OnceValues(func() (labels.Selector, error) { //nolint:gochecknoglobals // a constant
	has, err := labels.NewRequirement(clusterv1.MachineControlPlaneLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("building selector: %w", err)
	}
	return labels.NewSelector().Add(*has), nil
})

// Begun reports whether the first Machine of the control plane exists, or at least its KubeadmConfig, which Cluster API
// creates before it. Only the API server may say that it does not: on a busy management cluster the cache may be
// seconds behind, and a change in these seconds would replace the Machine.
//
// That holds for a control plane that is being created, too. Its Machines may be older than it is: a backup that is
// restored has the KubeadmConfigs first, in the order of the alphabet, and Cluster API adopts the Machines. Nothing in
// the request or in the Cluster distinguishes that from a new control plane.
func (c ControlPlanes) Begun(ctx context.Context, namespace, cluster string) (bool, error) {
	selected, err := OfControlPlane()
	if err != nil {
		return false, err
	}
	ofControlPlane := client.MatchingLabelsSelector{Selector: selected}
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	configs := &bootstrapv1.KubeadmConfigList{}
	in := client.InNamespace(namespace)
	for _, list := range []client.ObjectList{machines, configs} {
		err := c.Cached.List(ctx, list, in, client.MatchingFields{IndexLabel: cluster}, ofControlPlane,
			client.UnsafeDisableDeepCopy)
		if err == nil && (len(machines.Items) > 0 || len(configs.Items) > 0) {
			return true, nil
		}
	}
	// Not their metadata alone: the client would look up their resource each time, which costs more than an empty list.
	if err := c.Live.List(ctx, configs, in, ofControlPlane,
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}, client.Limit(1)); err != nil {
		return false, fmt.Errorf("listing KubeadmConfigs of the control plane: %w", err)
	}
	return len(configs.Items) > 0, nil
}
