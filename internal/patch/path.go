package patch

import (
	"path"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// IsManagedPath reports whether a file at p may be a managed one, so that decisions look at its content. Of all other
// files a caller may leave the content out of a Spec.
func IsManagedPath(p string) bool {
	switch path.Clean(p) {
	case contract.PathProxyEnv, contract.PathTrustedCA, contract.PathSetup:
		return true
	}
	return isDropIn(p)
}
