package api

import "path"

// Parents returns the JSON pointers from the outermost object to the bootstrap spec of an object of a kind, as
// patch.Location has them.
func Parents(kind string) []string {
	switch kind {
	case "KubeadmControlPlane":
		return []string{"/spec", "/spec/kubeadmConfigSpec"}
	case "KubeadmConfigTemplate":
		return []string{"/spec", "/spec/template", "/spec/template/spec"}
	default:
		return []string{"/spec"}
	}
}

// Locate returns the bootstrap spec of an object that was decoded from JSON, nil if it has none.
func Locate(kind string, object map[string]any) map[string]any {
	for _, parent := range Parents(kind) {
		object, _ = object[path.Base(parent)].(map[string]any)
	}
	return object
}
