package kinds

import (
	"encoding/json"
	"path"
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// parentsOf returns the JSON pointers to the bootstrap spec of an object, and how many of the last ones an API server
// does not accept empty: the others have other fields.
func parentsOf(object any) (parents []string, alone int) {
	switch object.(type) {
	case *controlplanev1.KubeadmControlPlane:
		return []string{"/spec", "/spec/kubeadmConfigSpec"}, 1
	case *controlplanev1.KubeadmControlPlaneTemplate:
		return []string{"/spec", "/spec/template", "/spec/template/spec", "/spec/template/spec/kubeadmConfigSpec"}, 1
	case *bootstrapv1.KubeadmConfigTemplate:
		return []string{"/spec", "/spec/template", "/spec/template/spec"}, 3
	default:
		return []string{"/spec"}, 1
	}
}

// PathOf returns the names of the fields from an object to its bootstrap spec.
func PathOf(object BootstrapObject) []string {
	parents, _ := parentsOf(object)
	return strings.Split(parents[len(parents)-1], "/")[1:]
}

// Locate returns where the bootstrap spec is in an object. text is the object in JSON; without it, the API server may
// have fields that object lacks.
func Locate(object BootstrapObject, text []byte) patch.Location {
	at := patch.Location{Decoded: text == nil}
	if text == nil {
		text, _ = json.Marshal(object) //nolint:errchkjson // the types of an API can be encoded
	}
	parents, most := parentsOf(object)
	at.Parents = parents
	holds := make([]int, len(parents)) // how many fields the parents have
	members := map[string]json.RawMessage{}
	_ = Decode(text, &members)
	for i, parent := range parents {
		field := members[path.Base(parent)]
		if members = nil; len(field) == 0 || string(field) == "null" {
			at.Missing = len(parents) - i
			return at
		}
		_ = Decode(field, &members)
		holds[i] = len(members)
	}
	lists := 0
	for _, list := range []patch.List{patch.ListFiles, patch.ListPre, patch.ListPost} {
		var entries []json.RawMessage
		_ = Decode(members[string(list)], &entries)
		lists += min(len(entries), 1)
	}
	// In v1beta1, parents may be empty, and some are required.
	if isOlder(object.GetObjectKind().GroupVersionKind().GroupVersion().String()) || holds[len(parents)-1] != lists {
		return at
	}
	for at.Alone = 1; at.Alone < most && holds[len(parents)-1-at.Alone] == 1; {
		at.Alone++
	}
	return at
}
