package render

import (
	"fmt"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// usual has the facts that most inputs share and that need no change. They are one line, so that the rest is not
// overlooked.
type usual struct {
	// clusters are the Clusters that a usual warning (noproxy.IsUsual), or codeVariables, is about.
	clusters map[finding.Code]map[*manifest.Object]bool
	// secrets are the names of the generated Secrets that are not printed.
	secrets []string
}

// codeVariables is a Cluster with variables of clusterctl in its network.
const codeVariables finding.Code = "variables"

func (u *usual) add(code finding.Code, cluster *manifest.Object) {
	if u.clusters == nil {
		u.clusters = map[finding.Code]map[*manifest.Object]bool{}
	}
	if u.clusters[code] == nil {
		u.clusters[code] = map[*manifest.Object]bool{}
	}
	u.clusters[code][cluster] = true
}

func (u *usual) String() string {
	var parts []string
	for _, code := range append(noproxy.Codes(), codeVariables) {
		if count := len(u.clusters[code]); count > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", described(code), count))
		}
	}
	if len(parts) > 0 {
		parts[0] = "Clusters " + parts[0]
	}
	if count := len(u.secrets); count > 0 {
		const secrets = "Secrets that the controller generates, or --include-secrets prints"
		parts = append(parts, fmt.Sprintf("%s: %d (%s)", secrets, count, finding.Few(u.secrets)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "summary: " + strings.Join(parts, "; ")
}

// described is the description of a code, worded to follow "Clusters".
func described(code finding.Code) string {
	switch code {
	case noproxy.CodeDefaultsUsed:
		return "with kubeadm's defaults for empty fields of spec.clusterNetwork"
	case noproxy.CodeEndpointUnset:
		return "without a control-plane endpoint yet"
	case noproxy.CodeInfrastructureUnknown:
		return "whose infrastructure cluster object is not in the input"
	case noproxy.CodeInfrastructureKind:
		return "whose kind of infrastructure is not known"
	case codeVariables:
		return "with variables of clusterctl in the network"
	default:
		return "with " + string(code)
	}
}
