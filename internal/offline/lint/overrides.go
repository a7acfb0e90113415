package lint

import (
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// CodeOverridden is a file or a command of a bootstrap spec that sets variables after the product's.
const CodeOverridden finding.Code = "overridden"

// overrides warns of files and commands in the bootstrap objects of a Cluster that set proxy variables after the
// product's. resolution is that of the pools with the override, or zero if its values are not known.
func (l *linter) overrides(c clusters.Cluster, options intent.Options, resolution resolve.Resolution, override string) {
	recipe, err := plan.Recipe(options, patch.OutputVersion, resolution.Settings.IsTrustOnly(),
		intent.GeneratedSecretName(c.View.Name))
	if err != nil {
		return // nothing is written that could be overridden
	}
	for _, o := range l.manifests.BootstrapObjects(c.Object, override) {
		object := l.manifests.BootstrapOf(o)
		found := patch.Overrides(object.Bootstrap().View(), recipe)
		at := finding.Field(clusters.SpecPath(object)...)
		for i := range found {
			found[i].Code, found[i].Place.Path = CodeOverridden, slices.Concat(at.Path, found[i].Place.Path)
		}
		l.addWarnings(o, found)
		l.mirrors(o, options, resolution)
	}
}
