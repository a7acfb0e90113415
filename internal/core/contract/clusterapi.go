package contract

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// ClusterAPIMinors returns the minor versions of Cluster API that this program supports, the oldest first.
func ClusterAPIMinors() []string { return []string{"v1.13", "v1.14"} }

// ClusterAPIMinor returns the minor version of a version of Cluster API, and "" if the text is not a version.
func ClusterAPIMinor(text string) string {
	parsed, err := version.ParseSemantic(text)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("v%d.%d", parsed.Major(), parsed.Minor())
}

// SupportsClusterAPI returns an error if a version of Cluster API is known not to be supported.
func SupportsClusterAPI(text string) error {
	minor := ClusterAPIMinor(text)
	if minor == "" || slices.Contains(ClusterAPIMinors(), minor) {
		return nil
	}
	return fmt.Errorf("Cluster API %s is not supported by capi-proxy-patcher %s, which supports %s: upgrade Cluster API, or, if that is newer, this product", //nolint:staticcheck // a name
		minor, CurrentBuild().Version, strings.Join(ClusterAPIMinors(), " and "))
}
