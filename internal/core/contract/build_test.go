package contract_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// TestLabel_IsTheValueOfALabel has versions of releases, of commits and of no module: a Lease with an invalid label
// would leave the installation without a leader.
func TestLabel_IsTheValueOfALabel(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v0.1.0": "v0.1.0", "(devel)": "devel", "v0.1.1-rc.1+build": "v0.1.1-rc.1_build",
		"feature/x": "feature_x", strings.Repeat("é-", 40): "", strings.Repeat("a", 62) + ".b": strings.Repeat("a", 62),
		"v0.1.1-0.20261129223911-59d3676f987f+dirty": "v0.1.1-0.20261129223911-59d3676f987f_dirty",
		contract.CurrentBuild().Version:              contract.CurrentBuild().Label(),
	} {
		got := contract.Build{Version: version}.Label()
		if problems := validation.IsValidLabelValue(got); got != want || len(problems) > 0 {
			t.Errorf("%s: %q, want %q; %v", version, got, want, problems)
		}
	}
}
