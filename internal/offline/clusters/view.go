package clusters

import (
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Dig returns the mapping at a path, nil if there is none.
func Dig(value map[string]any, path ...string) map[string]any {
	for _, key := range path {
		value, _ = value[key].(map[string]any)
	}
	return value
}

// Unresolved names fields with an unresolved variable of clusterctl.
func Unresolved(fields []finding.Place) string {
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.String()
	}
	return strings.Join(names, ", ")
}

// IsUnresolved reports whether the value at a place is, or contains, an unresolved variable of clusterctl. The variable
// may be in another object from which the value comes.
func IsUnresolved(place finding.Place, fields []finding.Place) bool {
	return place.Object == "" && slices.ContainsFunc(fields, func(field finding.Place) bool {
		return len(place.Path) > 0 && len(field.Path) >= len(place.Path) &&
			slices.Equal(field.Path[:len(place.Path)], place.Path)
	})
}
