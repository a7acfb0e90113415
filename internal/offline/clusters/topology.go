package clusters

import (
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
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
	key := x.cluster(cluster).GetClassKey()
	return x.Lookup(key.Namespace, GroupCluster, "ClusterClass", key.Name), kit.Qualified(key.Namespace, key.Name)
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

// CheckPatches warns of inline patches of a ClusterClass that name files of the product, or drop-ins that systemd reads
// after them.
func CheckPatches(class *manifest.Object) (found []finding.Finding) {
	for i, p := range Items(class.Value(), "spec", "patches") {
		text, _ := yaml.Marshal(p) // decoded from YAML
		for _, name := range patch.NamesIn(string(text), patch.UnitNames()) {
			comes := patch.OtherValues
			if patch.IsManagedPath(name) || patch.IsManagedPath("/etc/systemd/system/"+name) {
				comes = "the topology hook leaves a template alone that gets this file (" + contract.ReasonConflictingFile + ")"
			}
			found = append(found, finding.Finding{
				Code: patch.CodeOverridden, Place: finding.Field("spec", "patches").Index(i),
				Message: "names " + name + ": " + comes, Advice: patch.LeaveAlone,
			})
		}
	}
	return found
}
