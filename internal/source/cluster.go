// Package source resolves what a Cluster asks for: the options in its annotations, the proxy Secret it uses, and
// the NO_PROXY value that follows from its network. The controller and the offline command share it; they differ
// only in where Secrets come from.
package source

import (
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
)

// Cluster is what resolving needs to know of a Cluster.
type Cluster struct {
	Namespace, Name          string
	Annotations              map[string]string
	PodCIDRs, ServiceCIDRs   []string
	ServiceDomain            string
	EndpointHost             string
	EndpointPort             int32 // 0 while unknown
	InfrastructureKind       string
	ControlPlaneKind         string
	ControlPlaneName         string
	ControlPlaneGroup        string
	Topology                 bool
	Enabled, Paused, Deleted bool
	// Unclear is why the label says neither that the Cluster is enabled nor that it is not, or nil. Nothing is changed then.
	Unclear error
}

// ClusterOf returns the resolving view of a Cluster.
func ClusterOf(cluster *clusterv1.Cluster) Cluster {
	_, annotated := cluster.Annotations[clusterv1.PausedAnnotation]
	return Cluster{
		Namespace:          cluster.Namespace,
		Name:               cluster.Name,
		Annotations:        cluster.Annotations,
		PodCIDRs:           cluster.Spec.ClusterNetwork.Pods.CIDRBlocks,
		ServiceCIDRs:       cluster.Spec.ClusterNetwork.Services.CIDRBlocks,
		ServiceDomain:      cluster.Spec.ClusterNetwork.ServiceDomain,
		EndpointHost:       cluster.Spec.ControlPlaneEndpoint.Host,
		EndpointPort:       cluster.Spec.ControlPlaneEndpoint.Port,
		InfrastructureKind: cluster.Spec.InfrastructureRef.Kind,
		ControlPlaneKind:   cluster.Spec.ControlPlaneRef.Kind,
		ControlPlaneName:   cluster.Spec.ControlPlaneRef.Name,
		ControlPlaneGroup:  cluster.Spec.ControlPlaneRef.APIGroup,
		Topology:           cluster.Spec.Topology.IsDefined(),
		Enabled:            IsEnabled(cluster.Labels),
		Unclear:            CheckLabel(cluster.Labels),
		Paused:             annotated || cluster.Spec.Paused != nil && *cluster.Spec.Paused,
		Deleted:            !cluster.DeletionTimestamp.IsZero(),
	}
}

// NoProxyInput returns what NO_PROXY of a Cluster is composed from, without the lists that somebody wrote.
func NoProxyInput(cluster Cluster, options Options) noproxy.Input {
	return noproxy.Input{
		PodCIDRs:           cluster.PodCIDRs,
		ServiceCIDRs:       cluster.ServiceCIDRs,
		ServiceDomain:      cluster.ServiceDomain,
		EndpointHost:       cluster.EndpointHost,
		InfrastructureKind: cluster.InfrastructureKind,
		OmitGroups:         options.OmitGroups,
	}
}

// SecretLabels returns the labels of a generated Secret. The Cluster API label brings it into the caches of the
// bootstrap provider.
func SecretLabels(cluster Cluster) map[string]string {
	return map[string]string{clusterv1.ClusterNameLabel: cluster.Name, contract.LabelGenerated: cluster.Name}
}

// SecretAnnotations returns the annotations of a generated Secret.
func SecretAnnotations(resolution Resolution) map[string]string {
	annotations := map[string]string{contract.AnnotationSource: display(resolution.Secret.Name)}
	if codes := WarningCodes(resolution.Warnings); codes != "" {
		annotations[contract.AnnotationWarnings] = codes
	}
	return annotations
}

// Mendable returns warnings without those of an unset endpoint, which is a state and nothing to mend.
func Mendable(warnings []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(warnings), func(w finding.Finding) bool { return w.Code == noproxy.CodeEndpointUnset })
}

// WarningCodes lists the codes of mendable warnings once each, in order of appearance.
func WarningCodes(warnings []finding.Finding) string {
	var codes []string
	for _, warning := range Mendable(warnings) {
		if code := string(warning.Code); !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	return strings.Join(codes, ",")
}
