package resolve

import (
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
)

// NoProxyInput returns the input from which NO_PROXY of a Cluster is composed, without the lists that users write.
func NoProxyInput(cluster intent.Cluster, options intent.Options) noproxy.Input {
	return noproxy.Input{
		PodCIDRs:           cluster.PodCIDRs,
		ServiceCIDRs:       cluster.ServiceCIDRs,
		ServiceDomain:      cluster.ServiceDomain,
		EndpointHost:       cluster.EndpointHost,
		InfrastructureKind: cluster.InfrastructureKind,
		OmitGroups:         options.OmitGroups,
	}
}

// SecretAnnotations returns the annotations of a generated Secret.
func SecretAnnotations(resolution Resolution) map[string]string {
	annotations := map[string]string{contract.AnnotationSource: display(resolution.Secret.Name)}
	if codes := WarningCodes(resolution.Warnings); codes != "" {
		annotations[contract.AnnotationWarnings] = codes
	}
	return annotations
}

// Mendable returns warnings without those of an unset endpoint, which is a state and not a mistake.
func Mendable(warnings []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(warnings),
		func(w finding.Finding) bool { return w.Code == noproxy.CodeEndpointUnset })
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
