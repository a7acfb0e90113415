package settings_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

func TestOutputVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		want        int
	}{
		"no annotation is the first":      {nil, 1},
		"other annotations are the first": {map[string]string{"a": "7"}, 1},
		"a version is recorded":           {map[string]string{contract.AnnotationOutputVersion: "2"}, 2},
	} {
		if got, err := settings.OutputVersion(test.annotations); err != nil || got != test.want {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	for _, value := range []string{"", "0", "-1", "new", " 1", "1.0", "99999999999999999999", "1\n2{{"} {
		_, err := settings.OutputVersion(map[string]string{contract.AnnotationOutputVersion: value})
		if err == nil ||
			err.Error() != "annotation capi-proxy-patcher.io/output-version of the Cluster: not an output version" {
			t.Errorf("%q: %v", value, err)
		}
	}
}
