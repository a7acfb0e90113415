package settings

import (
	"strconv"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// firstOutputVersion is the output version of a Cluster that does not record another. It is not patch.OutputVersion: a
// hook sees templates, not the objects created from them, so a newer program must keep the version.
const firstOutputVersion = 1

// OutputVersion returns the output version of the templates of a Cluster: the one in its annotations, else the first.
// Its error is finding.Errors.
func OutputVersion(annotations map[string]string) (int, error) {
	recorded, found := annotations[contract.AnnotationOutputVersion]
	if !found {
		return firstOutputVersion, nil
	}
	version, err := strconv.Atoi(recorded)
	if err != nil || version < 1 {
		return 0, finding.Errors{finding.Rejection(CodeBadAnnotation,
			finding.Annotation(contract.AnnotationOutputVersion).Of("the Cluster"),
			"not an output version", "")}
	}
	return version, nil
}
