package clusters

import (
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// Items returns the list at a path as mappings; anything else counts as empty.
func Items(value map[string]any, path ...string) []map[string]any {
	last := len(path) - 1
	list, _ := Dig(value, path[:last]...)[path[last]].([]any)
	found := make([]map[string]any, len(list))
	for i, item := range list {
		found[i], _ = item.(map[string]any)
	}
	return found
}

// Class returns the ClusterClass of a Cluster and its name; nil if it is not in the input.
func (x Index) Class(cluster *manifest.Object) (class *manifest.Object, called string) {
	key := x.cluster(cluster).ClassKey()
	return x.Lookup(key.Namespace, GroupCluster, "ClusterClass", key.Name), Qualified(key.Namespace, key.Name)
}

// TemplateKind is the kind that a ClusterClass refers to, "" if it is not known.
func TemplateKind(parent map[string]any) string {
	for _, field := range []string{"templateRef", "ref"} { // v1beta2, v1beta1
		if kind, _ := Dig(parent, field)["kind"].(string); kind != "" && !strings.Contains(kind, "${") {
			return kind
		}
	}
	return ""
}
