package patch

import (
	"path"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// IsManagedPath reports whether a file at p may be a managed one, so that decisions read its content. A caller may omit
// the content of all other files from a Spec.
func IsManagedPath(p string) bool {
	switch path.Clean(p) {
	case contract.PathProxyEnv, contract.PathTrustedCA, contract.PathSetup:
		return true
	}
	return isDropIn(p)
}
