package plan

import (
	"maps"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Rolls reports whether a write that changes the KubeadmControlPlane stored to requested, both decoded from JSON,
// replaces the Machines of the control plane for the user's own reason. It follows what Cluster API v1.14 compares in
// UpToDate (controlplane/kubeadm/pkg/filters.go): the version, the infrastructure template, the bootstrap configuration
// without the fields that it ignores there, and rollout.after when that time is reached.
//
// In doubt it returns false: a missed rollout comes again, an unwanted one is an incident.
func Rolls(stored, requested map[string]any, now time.Time) bool {
	before, after := child(stored, "spec"), child(requested, "spec")
	if !reflect.DeepEqual(before["version"], after["version"]) ||
		!reflect.DeepEqual(reference(before), reference(after)) ||
		!reflect.DeepEqual(compared(before), compared(after)) {
		return true
	}
	text, _ := child(after, "rollout")["after"].(string)
	if text == "" || text == child(before, "rollout")["after"] {
		return false
	}
	due, err := time.Parse(time.RFC3339, text)
	return err == nil && !due.After(now)
}

// RollsBy returns the members of the spec of a KubeadmControlPlane that Rolls reads.
func RollsBy() []string {
	return []string{"version", "machineTemplate", "kubeadmConfigSpec", "rollout"}
}

// AtRest reports whether a change of a KubeadmControlPlane without Machines applies to all its future Machines. paused
// is the status of its condition Paused, "" if it has none, in the version that the change replaces.
//
// Cluster API creates the first Machine from the version that it has read, which may be older than the change, and
// would then replace that Machine. It creates Machines only in a pass that has read condition Paused as False; it
// writes the condition in a pass of its own, and works on one object in one pass at a time. So while the condition is
// absent or True, no pass that creates Machines works with that version or an earlier one.
func AtRest(paused metav1.ConditionStatus) bool { return paused != metav1.ConditionFalse }

// reference is the infrastructure template of a control plane. Labels, annotations and timeouts of Machines are changed
// without replacing them.
func reference(spec map[string]any) map[string]any {
	return child(spec, "machineTemplate", "spec", "infrastructureRef")
}

// compared is the part of a control plane's bootstrap configuration whose change makes Machines outdated.
func compared(spec map[string]any) map[string]any {
	config := patch.Own(child(spec, "kubeadmConfigSpec"))
	config["clusterConfiguration"] = without(child(config, "clusterConfiguration"), "controlPlaneEndpoint", "dns")
	join := child(config, "joinConfiguration")
	if len(join) > 0 {
		// The first Machine is compared as if it had joined.
		delete(config, "initConfiguration")
	}
	config["joinConfiguration"] = without(join, "discovery")
	for _, key := range []string{"initConfiguration", "joinConfiguration"} {
		part := child(config, key)
		if timeouts := child(part, "timeouts"); timeouts != nil {
			part = without(part, "timeouts")
			part["timeouts"] = without(timeouts, "controlPlaneComponentHealthCheckSeconds")
			config[key] = part
		}
	}
	return config
}

// child returns the mapping at a path, nil if there is none.
func child(value map[string]any, path ...string) map[string]any {
	for _, key := range path {
		value, _ = value[key].(map[string]any)
	}
	return value
}

// without returns a copy of value without some keys. It is never nil.
func without(value map[string]any, keys ...string) map[string]any {
	rest := make(map[string]any, len(value))
	maps.Copy(rest, value)
	for _, key := range keys {
		delete(rest, key)
	}
	return rest
}
