package patch_test

import (
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// A node writes a file to the same place in each of these forms.
func TestIsManagedPath_KnowsEveryFormOfAPath(t *testing.T) {
	forms := map[string]func(string) string{
		"as it is":              func(p string) string { return p },
		"two slashes":           func(p string) string { return strings.Replace(p, "/etc/", "/etc//", 1) },
		"two slashes at first":  func(p string) string { return "/" + p },
		"slash at the end":      func(p string) string { return p + "/" },
		"dot":                   func(p string) string { return strings.Replace(p, "/etc/", "/etc/./", 1) },
		"dot at the end":        func(p string) string { return p + "/." },
		"two dots":              func(p string) string { return strings.Replace(p, "/etc/", "/etc/a/../", 1) },
		"two dots of the root":  func(p string) string { return "/.." + p },
		"two dots, two slashes": func(p string) string { return "//..//x//.." + p },
	}
	for name, form := range forms {
		for _, managed := range []string{
			contract.PathProxyEnv, contract.PathTrustedCA, contract.PathSetup, systemd.DropInPath("kubelet"),
		} {
			if p := form(managed); !patch.IsManagedPath(p) {
				t.Errorf("%s: IsManagedPath(%q) = false, want true", name, p)
			}
		}
	}
	for _, other := range []string{"", "/", ".", contract.PathSetup[1:], contract.PathSetup + "/x", contract.PathSetup + "."} {
		if patch.IsManagedPath(other) {
			t.Errorf("IsManagedPath(%q) = true, want false", other)
		}
	}
}
