package settings

import (
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
)

// KindControlPlane is the only kind of control plane that is configured.
const KindControlPlane = "KubeadmControlPlane"

// Cluster has the facts about a Cluster that decisions read.
type Cluster struct {
	Namespace, Name        string
	Annotations            map[string]string
	PodCIDRs, ServiceCIDRs []string
	ServiceDomain          string
	EndpointHost           string
	EndpointPort           int32 // 0 while unknown
	// Infrastructure names the infrastructure cluster object.
	Infrastructure Reference
	// Facts are the facts about it.
	Facts infrastructure.Facts
	// Provisioned reports that the provider has filled in its object.
	Provisioned              bool
	ControlPlaneKind         string
	ControlPlaneName         string
	Topology                 bool
	Enabled, Paused, Deleted bool
	// Unclear is the finding about a label whose value means neither enabled nor disabled, or nil. Nothing changes
	// then.
	Unclear error
}

// Reference names an object in the namespace of a Cluster.
type Reference struct{ Group, Kind, Name string }

// ClusterOf reads a Cluster.
func ClusterOf(cluster *clusterv1.Cluster) Cluster {
	_, annotated := cluster.Annotations[clusterv1.PausedAnnotation]
	return Cluster{
		Namespace:     cluster.Namespace,
		Name:          cluster.Name,
		Annotations:   cluster.Annotations,
		PodCIDRs:      cluster.Spec.ClusterNetwork.Pods.CIDRBlocks,
		ServiceCIDRs:  cluster.Spec.ClusterNetwork.Services.CIDRBlocks,
		ServiceDomain: cluster.Spec.ClusterNetwork.ServiceDomain,
		EndpointHost:  cluster.Spec.ControlPlaneEndpoint.Host,
		EndpointPort:  cluster.Spec.ControlPlaneEndpoint.Port,
		Infrastructure: Reference{
			Group: cluster.Spec.InfrastructureRef.APIGroup, Kind: cluster.Spec.InfrastructureRef.Kind,
			Name: cluster.Spec.InfrastructureRef.Name,
		},
		Facts:            infrastructure.Of(cluster.Spec.InfrastructureRef.Kind),
		Provisioned:      ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false),
		ControlPlaneKind: cluster.Spec.ControlPlaneRef.Kind,
		ControlPlaneName: cluster.Spec.ControlPlaneRef.Name,
		Topology:         cluster.Spec.Topology.IsDefined(),
		Enabled:          IsEnabled(cluster.Labels),
		Unclear:          CheckLabel(cluster.Labels),
		Paused:           annotated || ptr.Deref(cluster.Spec.Paused, false),
		Deleted:          !cluster.DeletionTimestamp.IsZero(),
	}
}

// SecretLabels returns the labels of a generated Secret. The Cluster API label adds it to the caches of the bootstrap
// provider, contract.LabelProxySecret to ours.
func SecretLabels(cluster Cluster) map[string]string {
	return map[string]string{
		clusterv1.ClusterNameLabel: cluster.Name, contract.LabelGenerated: cluster.Name, contract.LabelProxySecret: "",
	}
}
