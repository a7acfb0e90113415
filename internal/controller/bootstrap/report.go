package bootstrap

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

// ReportPaused names the objects that this product has paused.
func ReportPaused(objects []Settled) (out report.Outcome) {
	for _, o := range objects {
		if o.GetAnnotations()[clusterv1.PausedAnnotation] == contract.PausedForEndpoint {
			out.Note("%s is paused by annotation %s until delivery %s can write the complete NO_PROXY",
				o, clusterv1.PausedAnnotation, contract.DeliveryInline)
		}
	}
	return out
}

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
