package lint

import (
	"fmt"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// CodeMirrorProxied is a registry mirror in a file of the user that containerd reaches through the proxy.
const CodeMirrorProxied finding.Code = "mirror-proxied"

// mirrors notes the registry mirrors in the hosts.toml files of a bootstrap object that containerd reaches through the
// proxy.
func (l *linter) mirrors(of clusters.Decided, options intent.Options, resolution resolve.Resolution) {
	if !slices.Contains(options.Targets, contract.TargetContainerd) {
		return
	}
	object := l.manifests.BootstrapOf(of.Object)
	for _, mirror := range clusters.Mirrors(object.Bootstrap().View().Files) {
		host, proxied := resolution.IsProxied(mirror.URL)
		if !proxied {
			continue
		}
		l.add(of.Object, Note, of.InSpec(finding.Finding{
			Code:  CodeMirrorProxied,
			Place: finding.Field("files").Index(mirror.File),
			Message: fmt.Sprintf("containerd reaches mirror %s of %s through the proxy", finding.Line(host, 253),
				finding.Line(mirror.Registry, 253)),
			Advice: "add its host to noProxy, unless the proxy shall ask the mirror",
		}))
	}
}
