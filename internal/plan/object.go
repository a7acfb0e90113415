package plan

import (
	"path"
	"slices"
	"strings"

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
	at.Alone = alone(at.Parents, object)
	return spec, at
}

// alone returns patch.Location.Alone for an object that has all parents. An empty list that is not ours stays, and so
// do its parents. In v1beta1 parents may be empty, and some are required.
func alone(parents []string, object map[string]any) int {
	if version, _ := object["apiVersion"].(string); strings.HasSuffix(version, "/v1beta1") {
		return 0
	}
	count := 0
	for i, parent := range parents {
		object, _ = object[path.Base(parent)].(map[string]any)
		count++
		for key, value := range object {
			list, _ := value.([]any)
			isSpec := i == len(parents)-1
			isList := isSpec && len(list) > 0 && slices.Contains(lists(), patch.List(key))
			isParent := !isSpec && key == path.Base(parents[i+1])
			if !isList && !isParent {
				count = 0
			}
		}
	}
	return count
}

// IsReadable reports whether the bootstrap spec of an object that was decoded from JSON, and its lists, have the types
// of the API, as far as they exist. Others are left to the API server, which rejects them.
func IsReadable(kind string, object map[string]any) bool {
	for _, parent := range Parents(kind) {
		value := object[path.Base(parent)]
		next, isObject := value.(map[string]any)
		if value != nil && !isObject {
			return false
		}
		object = next
	}
	for _, list := range lists() {
		if _, isList := object[string(list)].([]any); object[string(list)] != nil && !isList {
			return false
		}
	}
	return true
}

func lists() []patch.List { return []patch.List{patch.ListFiles, patch.ListPre, patch.ListPost} }
