package patch

import (
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// NodeChange is what an update in place changes on a node, as far as files differ: what is known is the bootstrap spec
// of its Machine, and not the content of files that come from a Secret.
type NodeChange struct {
	// Adds, Replaces and Removes are files of the product.
	Adds     []string `json:"adds,omitempty"`
	Replaces []string `json:"replaces,omitempty"`
	Removes  []string `json:"removes,omitempty"`
	// Conflicts are files of others, because of which nothing is changed.
	Conflicts []string `json:"conflicts,omitempty"`
	// Restarts are the services that may be restarted.
	Restarts []string `json:"restarts,omitempty"`
}

// ChangeOf is what an update in place changes on the node of a Machine with a bootstrap spec. got is
// contract.AnnotationUpdatedFiles: FilesDigest of the files that the node got in place since, "" if it got none.
func ChangeOf(spec Spec, recipe Recipe, got string) NodeChange {
	unknown := false
	switch got {
	case "":
	case contract.FilesRemovedValue:
		spec.Files = slices.DeleteFunc(slices.Clone(spec.Files), IsManagedFile)
	case FilesDigest(recipe):
		spec.Files = recipe.Files
	default:
		unknown = true
	}
	var c NodeChange
	for _, name := range ManagedPaths() {
		has, wants := fileAt(spec.Files, name), fileAt(recipe.Files, name)
		switch {
		case wants == nil && (unknown || has != nil && IsManagedFile(*has)):
			c.Removes = append(c.Removes, name)
		case wants == nil:
		case unknown || has != nil && IsManagedFile(*has) && (*has != *wants || wants.Content == ""):
			c.Replaces = append(c.Replaces, name)
		case has == nil:
			c.Adds = append(c.Adds, name)
		case !IsManagedFile(*has):
			c.Conflicts = append(c.Conflicts, name)
		}
	}
	if len(c.Conflicts) > 0 {
		return NodeChange{Conflicts: c.Conflicts}
	}
	changed := slices.Concat(c.Adds, c.Replaces, c.Removes)
	for _, u := range Units() {
		dropIn := u.DropIn()
		if slices.Contains(changed, dropIn) || slices.Contains(changed, contract.PathTrustedCA) ||
			slices.Contains(changed, contract.PathProxyEnv) && fileAt(recipe.Files, dropIn) != nil {
			c.Restarts = append(c.Restarts, u.Name())
		}
	}
	return c
}

// fileAt returns the file at a path, or nil.
func fileAt(files []File, name string) *File {
	if i := slices.IndexFunc(files, func(f File) bool { return clean(f.Path) == name }); i >= 0 {
		return &files[i]
	}
	return nil
}
