package render

import (
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// CheckMetadata returns a rejection for each label and annotation of an object of Cluster API whose value is not a
// string, and for those of ours in any object. An API server rejects them; here they would be ignored.
func CheckMetadata(o *manifest.Object) finding.Errors {
	group, _, _ := strings.Cut(o.APIVersion(), "/")
	clusterAPI := group == groupCluster || strings.HasSuffix(group, "."+groupCluster)
	var found finding.Errors
	for _, field := range []string{"labels", "annotations"} {
		entries := dig(o.Value(), "metadata", field)
		for _, key := range sortedKeys(entries) {
			_, isString := entries[key].(string)
			if isString || entries[key] == nil || !clusterAPI && !strings.HasPrefix(key, contract.Domain+"/") {
				continue
			}
			found = append(found, finding.Rejection(intent.CodeBadMetadata, finding.Field("metadata", field, key),
				"the value is not a string", "put it in quotes"))
		}
	}
	return found
}

// checkMetadata adds the findings of CheckMetadata to the problems.
func (r *renderer) checkMetadata() {
	for _, o := range slices.Concat(r.objects, r.secrets.given.secrets()) {
		for _, found := range CheckMetadata(o) {
			r.reject(o, "%s", found)
		}
	}
}
