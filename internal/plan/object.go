package plan

import (
	"path"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// OriginalsKey is the key of an object in patch.Originals.
func OriginalsKey(kind, name string) string { return kind + "/" + name }

// Parents returns the JSON pointers from the outermost object to the bootstrap spec of an object of a kind, as
// patch.Location has them.
func Parents(kind string) []string {
	switch kind {
	case KindControlPlane:
		return []string{"/spec", "/spec/kubeadmConfigSpec"}
	case KindTemplate:
		return []string{"/spec", "/spec/template", "/spec/template/spec"}
	default:
		return []string{"/spec"}
	}
}

// Locate returns the bootstrap spec of an object that was decoded from JSON, nil if it has none, and where it is.
func Locate(kind string, object map[string]any) (map[string]any, patch.Location) {
	at := patch.Location{Parents: Parents(kind)}
	spec := object
	for i, parent := range at.Parents {
		next, found := spec[path.Base(parent)].(map[string]any)
		if !found {
			at.Missing = len(at.Parents) - i
			return nil, at
		}
		spec = next
	}
	for key := range spec {
		switch patch.List(key) {
		case patch.ListFiles, patch.ListPre, patch.ListPost:
		default:
			at.Others = true
		}
	}
	return spec, at
}
