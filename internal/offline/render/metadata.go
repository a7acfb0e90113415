package render

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"

// checkMetadata adds the findings of CheckMetadata to the problems.
func (r *renderer) checkMetadata() {
	for _, o := range r.Objects() {
		for _, found := range clusters.CheckMetadata(o) {
			r.reject(o, "%s", found)
		}
	}
}
