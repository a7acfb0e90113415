package internal_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// gone are names of what the product does not have any more.
var gone = []string{
	// hooks of the manager
	`--hook-`, `"hook-(port|cert|bind|client)`, `hold-cluster-create`, `client-ca-name`, `manager-hooks`, `hooks of the manager`,
	`before-cluster-create`, `BeforeClusterCreate`,
	// delivery Inline
	`Inline delivery`, "[Dd]elivery `?Inline", `Reference delivery`, "[Dd]elivery `?Reference", `capi-proxy-patcher\.io/delivery`,
	`AnnotationDelivery`, `settings-hash`, `waiting-for-control-plane-endpoint`, `DELIVERY `,
	// adoption of the user's files
	`capi-proxy-patcher\.io/adopt`, `AnnotationAdopt`, `adopted-files`, `secret-too-large`,
	// target kubeadm, which is commands
	`TargetKubeadm`, `containerd,kubelet,kubeadm`,
	// memories beside controller-runtime's queue and caches
	`internal/expiring`, `controller/passes`, `controller/contest`, `names of Secrets are watched`, `every tenth interval`,
	// programs of hack/
	`hack/(scale|bench|measure)\b`, `bench-growth`, `bench-baseline`, `demo-stop`,
	// our own authentication and queues
	`internal/diagnostics`, `TokenReviewer`, `--diagnostics-cert`,
}

// TestGone_IsNamedNowhere looks for them in documentation, manifests, RBAC, templates, and the program with its flags.
// Decisions, the changelog and the page about the scope may say what was taken out.
func TestGone_IsNamedNowhere(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(strings.Join(gone, "|"))
	may := map[string]bool{"docs/scope.md": true, "docs/adr": true}
	files := os.DirFS("..")
	for _, root := range []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "cmd", "config", "docs", "internal", "templates"} {
		err := fs.WalkDir(files, root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case may[path] && entry.IsDir():
				return fs.SkipDir
			case may[path] || entry.IsDir() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text, err := fs.ReadFile(files, path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(text), "\n") {
				if found := pattern.FindString(line); found != "" {
					t.Errorf("%s:%d: %q is gone", path, i+1, found)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
