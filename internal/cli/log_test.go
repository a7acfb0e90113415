package cli

import (
	"fmt"
	"strings"
	"testing"
)

func TestVerbosity_RefusesLevelsAboveTheHighest(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"manager", "hooks"} {
		for _, level := range []string{"-1", "6", "8", "10", "2147483647"} {
			status, _, stderr := run(t, "", command, "-v", level)
			want := fmt.Sprintf("capi-proxy-patcher: -v %s: use a level from 0 to 5; ", level)
			if status != exitUsage || !strings.HasPrefix(stderr, want) {
				t.Errorf("%s -v %s: status %d: %s", command, level, status, stderr)
			}
		}
	}
}
