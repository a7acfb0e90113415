package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// NoProxyInput returns the input from which NO_PROXY of a Cluster is composed, without the lists that users write.
func NoProxyInput(cluster Cluster, options Options) noproxy.Input {
	return noproxy.Input{
		PodCIDRs:       cluster.PodCIDRs,
		ServiceCIDRs:   cluster.ServiceCIDRs,
		ServiceDomain:  cluster.ServiceDomain,
		EndpointHost:   cluster.EndpointHost,
		Infrastructure: facts(cluster),
		OmitGroups:     options.OmitGroups,
	}
}

// facts returns the known facts about the infrastructure of a Cluster, with a finding about missing ones.
func facts(cluster Cluster) noproxy.Infrastructure {
	known, reference := cluster.Facts.Infrastructure, cluster.Infrastructure
	const link = "link-local address"
	known.Metadata = append(slices.Clip(known.Metadata), // clouds of all kinds have their metadata service there
		noproxy.Fact{Text: "169.254.169.254", Role: link}, noproxy.Fact{Text: "169.254.0.0/16", Role: link},
		noproxy.Fact{Text: "fe80::/10", Role: link, OnlyIPv6: true})
	unknown := finding.Finding{Code: noproxy.CodeInfrastructureUnknown, Place: finding.Field("spec", "infrastructureRef")}
	switch {
	case reference.Kind == "" && cluster.Topology:
		unknown.Message = "the kind of infrastructure is not known yet, so NO_PROXY lacks its metadata service and its " +
			"networks"
		unknown.Advice = "add the ClusterClass to the manifests; the controller reads it by itself"
	case !cluster.Facts.Read && infrastructure.IsRead(reference.Kind):
		unknown.Message = fmt.Sprintf("%s %s is not known yet, so NO_PROXY lacks its networks and internal hosts",
			reference.Kind, reference.Name)
		unknown.Advice = "add the object to the manifests; the controller reads it by itself"
	default:
		return known
	}
	known.Findings = append(slices.Clip(known.Findings), unknown)
	return known
}

// SecretAnnotations returns the annotations of a generated Secret.
func SecretAnnotations(resolution Resolution) map[string]string {
	annotations := map[string]string{contract.AnnotationSource: display(resolution.Secret.Name)}
	if codes := WarningCodes(resolution.Warnings); codes != "" {
		annotations[contract.AnnotationWarnings] = codes
	}
	return annotations
}

// Mendable returns the warnings that a user can mend. An endpoint or infrastructure that is not known yet is a state
// and not a mistake.
func Mendable(warnings []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(warnings),
		func(w finding.Finding) bool {
			return w.Code == noproxy.CodeEndpointUnset || w.Code == noproxy.CodeInfrastructureUnknown
		})
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
