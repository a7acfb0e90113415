package clusters

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
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

// topologyField is the place of a field of spec.topology.
func topologyField(names ...string) finding.Place {
	return finding.Field("spec", "topology").Child(names...)
}

// topologySource reads the topology of a Cluster, v1beta1 or v1beta2. A variable whose value has an unresolved variable
// of clusterctl counts as not set and is named.
func topologySource(o *manifest.Object) (s intent.TopologySource, unresolved []finding.Place) {
	variable := func(parent map[string]any, list string, path finding.Place) []byte {
		for _, item := range Items(parent, list) {
			if item["name"] != contract.VariableName {
				continue
			}
			raw, err := json.Marshal(item["value"])
			if err != nil || strings.Contains(string(raw), "${") {
				unresolved = append(unresolved, path.Item(contract.VariableName))
				return nil
			}
			return raw
		}
		return nil
	}
	value := Dig(o.Value(), "spec", "topology")
	s.Annotations = o.Annotations()
	s.Variable = variable(value, "variables", topologyField("variables"))
	s.ControlPlane = variable(Dig(value, "controlPlane", "variables"), "overrides",
		topologyField("controlPlane", "variables", "overrides"))
	for _, kind := range []string{intent.KindMachineDeployment, intent.KindMachinePool} {
		list := strings.ToLower(kind[:1]) + kind[1:] + "s"
		for _, item := range Items(value, "workers", list) {
			pool := intent.PoolSource{Kind: kind, Annotations: map[string]string{}}
			pool.Name, _ = item["name"].(string)
			for key, annotation := range Dig(item, "metadata", "annotations") {
				if text, isText := annotation.(string); isText {
					pool.Annotations[key] = text
				}
			}
			pool.Variable = variable(Dig(item, "variables"), "overrides",
				topologyField("workers", list).Item(pool.Name).Child("variables", "overrides"))
			s.Pools = append(s.Pools, pool)
		}
	}
	return s, unresolved
}

// Class returns the ClusterClass of a Cluster and its name; nil if it is not in the input.
func (m *Manifests) Class(cluster *manifest.Object) (class *manifest.Object, called string) {
	value := Dig(cluster.Value(), "spec", "topology")
	name, _ := value["class"].(string)
	namespace, _ := value["classNamespace"].(string)
	if reference := Dig(value, "classRef"); reference != nil {
		name, _ = reference["name"].(string)
		namespace, _ = reference["namespace"].(string)
	}
	namespace = cmp.Or(namespace, cluster.Namespace())
	return m.Lookup(namespace, GroupCluster, "ClusterClass", name), Qualified(namespace, name)
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
