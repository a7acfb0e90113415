package render

import (
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// CheckMetadata returns a rejection for each label and annotation of an object of Cluster API whose value is not a string,
// and for those of ours in any object. An API server refuses them; here they would be as good as absent.
func CheckMetadata(o *manifest.Object) []*noproxy.Error {
	group, _, _ := strings.Cut(o.APIVersion(), "/")
	clusterAPI := group == groupCluster || strings.HasSuffix(group, "."+groupCluster)
	var found []*noproxy.Error
	for _, field := range []string{"label", "annotation"} {
		entries := dig(o.Value(), "metadata", field+"s")
		for _, key := range sortedKeys(entries) {
			_, isString := entries[key].(string)
			if isString || entries[key] == nil || !clusterAPI && !strings.HasPrefix(key, contract.Domain+"/") {
				continue
			}
			found = append(found, &noproxy.Error{
				Code: source.CodeBadMetadata, Where: field + " " + key, Why: "the value is not a string", Fix: "put it in quotes",
			})
		}
	}
	return found
}

// checkMetadata rejects what CheckMetadata finds.
func (r *renderer) checkMetadata() {
	for _, o := range slices.Concat(r.objects, r.secrets.given.objects) {
		for _, finding := range CheckMetadata(o) {
			r.reject(o, "%s", finding)
		}
	}
}
