package render

import (
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// CheckNames warns of labels and annotations of a Cluster or a pool that carry the domain of the product and that
// nothing reads.
func CheckNames(o *manifest.Object) []finding.Finding {
	switch group, _, _ := strings.Cut(o.APIVersion(), "/"); {
	case group != groupCluster:
		return nil
	case o.Kind() == "Cluster":
		said, _ := topologySource(o)
		return intent.CheckNames(o.Labels(), said)
	case isPool(o) && !plan.IsTopologyOwned(o.Labels()):
		return intent.CheckPool(o.Annotations())
	}
	return nil
}

// IsVariableLabel reports whether the value of contract.LabelEnabled is an unresolved variable of clusterctl.
func IsVariableLabel(o *manifest.Object) bool {
	return strings.Contains(o.Labels()[contract.LabelEnabled], "${")
}

// checkNames reports the warnings of CheckNames, and notes if nothing can be patched because no Cluster has the label.
func (r *renderer) checkNames() {
	for _, o := range r.objects {
		for _, warning := range CheckNames(o) {
			r.warn(o, "%s", warning)
		}
	}
	enabled := func(o *manifest.Object) bool { return intent.IsEnabled(o.Labels()) }
	if !r.All && !slices.ContainsFunc(r.find("Cluster"), enabled) {
		r.notes = append(r.notes, "no Cluster in the input has label "+contract.LabelEnabled+": \""+
			contract.LabelEnabledValue+"\"; nothing is patched")
	}
}

// leave leaves everything of a Cluster unchanged if its label has an unknown value.
func (r *renderer) leave(cluster *manifest.Object, members []member, unclear error) {
	if IsVariableLabel(cluster) {
		r.note(cluster, "label %s has an unresolved variable; nothing changes until clusterctl generate cluster resolves it",
			contract.LabelEnabled)
	} else {
		r.warn(cluster, "%s", unclear)
	}
	for _, m := range members {
		r.users[m.object] = cluster
	}
	if class, _ := r.class(cluster); class != nil {
		r.declared[class] = true
	}
}
