package render

import (
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// checkMetadata adds the findings of CheckMetadata to the problems.
func (r *renderer) checkMetadata() {
	for _, o := range r.Objects() {
		for _, found := range clusters.CheckMetadata(o) {
			r.reject(o, "%s", found)
		}
	}
}

// checkNames reports the warnings of CheckNames, and notes if nothing can be patched because no Cluster has the label.
func (r *renderer) checkNames() {
	for _, o := range r.Index.Objects {
		for _, warning := range r.CheckNames(o) {
			r.warn(o, "%s", warning)
		}
	}
	enabled := func(o *manifest.Object) bool { return settings.IsEnabled(o.Labels()) }
	if !r.All && !slices.ContainsFunc(r.Find("Cluster"), enabled) {
		r.notes.add(nil, "no Cluster in the input has label "+contract.LabelEnabled+": \""+
			contract.LabelEnabledValue+"\"; nothing is patched")
	}
}

// leave leaves everything of a Cluster unchanged if its label has an unknown value.
func (r *renderer) leave(cluster *manifest.Object, unclear error) {
	if clusters.IsVariableLabel(cluster) {
		r.note(cluster, "label %s has an unresolved variable; nothing changes until clusterctl generate cluster resolves it",
			contract.LabelEnabled)
	} else {
		r.warn(cluster, "%s", unclear)
	}
	if class, _ := r.Class(cluster); class != nil {
		r.declared[class] = true
	}
}
