package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// CodeMirrorProxied is a registry mirror in a file of the user that containerd reaches through the proxy.
const CodeMirrorProxied finding.Code = "mirror-proxied"

// mirrorHost matches the header of a mirror's table in hosts.toml. Its URL is the first or the second group.
var mirrorHost = regexp.MustCompile(`(?m)^[ \t]*\[[ \t]*host[ \t]*\.[ \t]*(?:"([^"\n]*)"|'([^'\n]*)')[ \t]*\]`)

// maxMirrors bounds how many mirrors of a file are compared with NO_PROXY.
const maxMirrors = 100

// mirrors notes the registry mirrors in the hosts.toml files of a bootstrap object that containerd reaches through the
// proxy. Files whose content is encoded or in a Secret are not read.
func (l *linter) mirrors(o *manifest.Object, options intent.Options, resolution resolve.Resolution) {
	if !slices.Contains(options.Targets, contract.TargetContainerd) {
		return
	}
	at, _ := clusters.SpecPath(o)
	for i, f := range patch.SpecOfMap(clusters.Dig(o.Value(), at...)).Files {
		if isHosts, _ := path.Match("/etc/containerd/certs.d/*/hosts.toml", f.Path); !isHosts || f.Other {
			continue
		}
		for _, found := range mirrorHost.FindAllStringSubmatch(f.Content, maxMirrors) {
			mirror := found[1] + found[2]
			host, proxied := resolution.IsProxied(mirror)
			if !proxied {
				continue
			}
			l.add(o, Note, finding.Finding{
				Code:  CodeMirrorProxied,
				Place: finding.Field(append(slices.Clone(at), "files")...).Index(i),
				Message: fmt.Sprintf("containerd reaches mirror %s of %s through the proxy", finding.Line(host, 253),
					finding.Line(path.Base(path.Dir(f.Path)), 253)),
				Advice: "add its host to noProxy, unless the proxy shall ask the mirror",
			})
		}
	}
}
