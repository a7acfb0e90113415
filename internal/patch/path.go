package patch

import (
	"path"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// IsManagedPath reports whether a file at p may be a managed one, so that its content says whose it is.
func IsManagedPath(p string) bool {
	switch clean(p) {
	case contract.PathProxyEnv, contract.PathTrustedCA, contract.PathSetup:
		return true
	}
	return isDropIn(p)
}

// ReadsContent reports whether decisions read the content of a file at p: that of a managed path, or of a drop-in that
// systemd reads after ours. A caller may omit the content of all other files from a Spec.
func ReadsContent(p string) bool { return IsManagedPath(p) || len(laterDropInOf(p)) > 0 }

// laterDropInOf returns the units for which a file at p is a drop-in that systemd reads after ours.
func laterDropInOf(p string) []contract.Target {
	var units []contract.Target
	for _, u := range Units() {
		if systemd.IsLaterDropInOf(p, u.Name()) {
			units = append(units, u.Target)
		}
	}
	return units
}

// clean is path.Clean, which looks at every letter even of a path that stays the same: a decision asks hundreds of
// times.
func clean(p string) string {
	if len(p) > 1 && p[0] == '/' && p[len(p)-1] != '/' && !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	return path.Clean(p)
}
