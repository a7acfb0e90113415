package plan

import (
	"maps"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// IsPausedByUs reports whether annotations are of an object that this product has paused: Cluster API does not
// reconcile it as long as it carries the annotation, whatever the value.
func IsPausedByUs(annotations map[string]string) bool {
	return annotations[clusterv1.PausedAnnotation] == contract.PausedForPatch
}

// IsPausedByUser reports whether annotations belong to an object that somebody else has paused.
func IsPausedByUser(annotations map[string]string) bool {
	_, paused := annotations[clusterv1.PausedAnnotation]
	return paused && !IsPausedByUs(annotations)
}

// AnnotationOperations returns the JSON patch that gives the keys of want their values in an object with the
// annotations current. The empty value removes a key. Keys that want does not name are not changed.
func AnnotationOperations(current, want map[string]string) []patch.Operation {
	const root = "/metadata/annotations"
	var operations []patch.Operation
	exists := current != nil
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value, found := current[key]
		path := root + "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
		switch {
		case want[key] == "" && found:
			operations = append(operations, patch.Operation{Op: "remove", Path: path})
		case want[key] == "" || found && value == want[key]:
		case !exists:
			exists = true
			operations = append(operations, patch.Operation{Op: "add", Path: root, Value: map[string]string{key: want[key]}})
		default:
			operations = append(operations, patch.Operation{Op: "add", Path: path, Value: want[key]})
		}
	}
	return operations
}
