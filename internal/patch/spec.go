// Package patch computes the changes of a kubeadm bootstrap spec. It is the only place that does: package plan, for the
// controller, the webhooks, the topology hook and the command line, calls Ensure and Remove with a view of a bootstrap
// spec, and each of them applies the edits in its own representation.
//
// Ensure never appends twice: on a spec that it has already patched it returns no edits, and Remove after Ensure
// restores the former spec.
package patch

import (
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// SecretKey refers to one key of a Secret in the namespace of the bootstrap object.
type SecretKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// File is one entry of files, as far as decisions about it need.
type File struct {
	Path, Owner, Permissions string
	// Content is the inline content, in the encoding of the API that Encoding names, "" for none. A caller may have
	// Filler in its place for a file for which ReadsContent is false.
	Content, Encoding string
	// ContentFrom is set instead of Content for a file that comes from a Secret.
	ContentFrom SecretKey
	// Other is set if the entry has fields beyond those above. Managed files never have one.
	Other bool
}

// Spec is the view of a bootstrap spec (KubeadmConfigSpec) on which decisions are made.
type Spec struct {
	Files               []File
	PreKubeadmCommands  []string
	PostKubeadmCommands []string
	// Ignition are files and drop-ins that Ignition writes beside Files, from additionalConfig. A caller may leave out
	// those for which ReadsContent is false.
	Ignition []File
	// Format is the format of the bootstrap data; empty is the default.
	Format string
	// CRISockets and KubeletArgs come from the node registrations; they identify Windows nodes.
	CRISockets  []string
	KubeletArgs []string
	// ECDSA reports that the keys of the Cluster are of that algorithm, which are shorter than those of RSA.
	ECDSA bool
}

// mark ends every managed command. A shell takes it for a comment.
const mark = " # " + contract.Name

// managedHeader is in the first lines of every managed file with inline content.
const managedHeader = "# Managed by " + contract.Name

// IsManagedFile reports whether any version of this product has written f. A file at a managed path that is not
// recognized belongs to the user.
func IsManagedFile(f File) bool {
	switch clean(f.Path) {
	case contract.PathProxyEnv:
		return f.ContentFrom.Key == contract.KeyProxyEnv
	case contract.PathTrustedCA:
		return f.ContentFrom.Key == contract.KeyTrustedCABundle || HasMark(f.Content)
	case contract.PathSetup:
		return f.ContentFrom.Key == contract.KeySetup || HasMark(f.Content)
	default:
		return isDropIn(f.Path) && HasMark(f.Content)
	}
}

// References returns the names of the generated Secrets that managed files of spec come from, one for each such file.
func References(spec Spec) []string {
	var names []string
	for _, f := range spec.Files {
		if f.ContentFrom.Name != "" && IsManagedFile(f) {
			names = append(names, f.ContentFrom.Name)
		}
	}
	return names
}

// HasMark reports whether content is that of a managed file: one of its first two lines is the header of managed files;
// a script has its interpreter in the first.
func HasMark(content string) bool {
	first, rest, _ := strings.Cut(content, "\n")
	second, _, _ := strings.Cut(rest, "\n")
	return first == managedHeader || second == managedHeader
}

func fileOfMap(entry map[string]any) File {
	secret := mapOf(mapOf(entry["contentFrom"])["secret"])
	f := File{
		Path: stringOf(entry["path"]), Owner: stringOf(entry["owner"]), Permissions: stringOf(entry["permissions"]),
		Content:     stringOf(entry["content"]),
		ContentFrom: SecretKey{Name: stringOf(secret["name"]), Key: stringOf(secret["key"])},
	}
	for key := range entry {
		switch key {
		case "path", "owner", "permissions", "content", "contentFrom":
		default:
			f.Other = true
		}
	}
	return f
}
