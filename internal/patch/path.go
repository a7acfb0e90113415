package patch

import (
	"path"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// IsManagedPath reports whether a file at p may be a managed one, so that its content says whose it is.
func IsManagedPath(p string) bool {
	switch clean(p) {
	case contract.PathProxyEnv, contract.PathTrustedCA, contract.PathSetup:
		return true
	}
	return isDropIn(p)
}

// clean is path.Clean, which looks at every letter even of a path that stays the same: a decision asks hundreds of
// times.
func clean(p string) string {
	if len(p) > 1 && p[0] == '/' && p[len(p)-1] != '/' && !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	return path.Clean(p)
}
