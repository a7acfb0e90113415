package infrastructure

import (
	"maps"
	"slices"
)

// Fields returns the paths of the fields that are read of a kind, and the type that each must have.
func Fields(kind string) map[string]string {
	r, fields := find(kind), map[string]string{}
	for _, path := range slices.Concat(slices.Concat(r.nodes...), r.metadataIn, r.hosts, r.urls, slices.Collect(maps.Keys(r.suffixes)), []string{r.endpoint}) {
		fields[path] = "string"
	}
	for _, path := range r.ranges {
		fields[path+".addresses[]"], fields[path+".prefix"] = "string", "integer"
	}
	fields[r.nodesIf] = "boolean"
	delete(fields, "")
	return fields
}
