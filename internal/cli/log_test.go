package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

func TestVerbosity_RefusesLevelsAboveTheHighest(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"manager", "hooks"} {
		for _, level := range []string{"-1", "6", "8", "10", "2147483647"} {
			status, stderr := run(t, command, "-v", level)
			want := fmt.Sprintf("capi-proxy-patcher: -v %s: use a level from 0 to 5; ", level)
			if status != kit.ExitUsage || !strings.HasPrefix(stderr, want) {
				t.Errorf("%s -v %s: status %d: %s", command, level, status, stderr)
			}
		}
	}
}
