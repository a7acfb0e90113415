package reconcile

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

// CheckNames returns warnings about annotations of bootstrap objects and pools that nothing reads. Pools of a topology
// have those that the Cluster has for them.
func CheckNames(objects []Object) (found []finding.Finding) {
	for _, o := range objects {
		for _, warning := range intent.CheckBootstrap(o.GetAnnotations()) {
			warning.Place = warning.Place.Of(o.String())
			found = append(found, warning)
		}
		for _, pool := range o.Pools {
			if pool.Topology {
				continue
			}
			for _, warning := range intent.CheckPool(pool.Annotations) {
				warning.Place = warning.Place.Of(pool.String())
				found = append(found, warning)
			}
		}
	}
	return found
}
