package patch

import (
	"slices"
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// CodeUserData is user data that is larger than the infrastructure takes.
const CodeUserData finding.Code = "user-data-size"

// UserData returns how many bytes the user data of a Machine has at least, and how many of them recipe adds. Managed
// entries of spec do not count, nor what files of the user have from Secrets, nor fields that Spec lacks. data is that
// of the generated Secret, nil if it is not known.
func UserData(spec Spec, recipe Recipe, data map[string][]byte, controlPlane bool) (all, ours int) {
	switch { // what Cluster API adds, a little less; for a control plane, keys that it generates
	case !controlPlane:
		all = 800
	case spec.ECDSA:
		all = 4_600
	default:
		all = 13_000
	}
	const command = len("\n  -")
	for _, f := range recipe.Files {
		if f.Content == "" {
			f.Content = string(data[f.ContentFrom.Key])
		}
		ours += FileSize(spec.Format, f)
	}
	for _, c := range slices.Concat(recipe.First, recipe.Last) {
		ours += len(c) + command
	}
	for _, f := range spec.Files {
		if !IsManagedFile(f) {
			all += FileSize(spec.Format, f)
		}
	}
	for _, c := range slices.Concat(spec.PreKubeadmCommands, spec.PostKubeadmCommands) {
		if !isManagedCommand(c) {
			all += len(c) + command
		}
	}
	return all + ours, ours
}

// FileSize returns how many bytes a file takes in user data of a format, at least.
func FileSize(format string, f File) int {
	size := len("\n-   path: \n    content: |\n") + len(f.Path) + len(f.Owner) + len(f.Permissions)
	if f.Owner != "" && f.Permissions != "" {
		size += len("    owner: \n    permissions: ''\n")
	}
	switch {
	case bootstrapv1.Format(format) != bootstrapv1.Ignition:
		return size + len(f.Content) + len("      ")*(1+strings.Count(f.Content, "\n"))
	case f.Other: // Ignition has the content of base64
		return size + len(f.Content)/4*3
	}
	for _, c := range []byte(f.Content) { // as in a URL
		if !isLetter(c) && (c < '0' || c > '9') && strings.IndexByte("-_.!~*'()", c) < 0 {
			size += len("%20") - 1
		}
	}
	return size + len(f.Content)
}

var filler = strings.Repeat("x", 128<<10) //nolint:gochecknoglobals // a constant

// Filler returns a text that a cache keeps in place of a content: it has the same FileSize, as far as limits of user
// data depend on it, and takes no memory, as all share one string. ReadsContent is false for it.
func Filler(format string, f File) string {
	size := len(f.Content)
	if bootstrapv1.Format(format) != bootstrapv1.Ignition || !f.Other {
		size = FileSize(format, f) - FileSize(format, File{Path: f.Path, Owner: f.Owner, Permissions: f.Permissions})
	}
	return filler[:min(size, len(filler))]
}
