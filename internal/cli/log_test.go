package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

func TestVerbosity_RefusesLevelsAboveTheHighest(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"manager", "hooks"} {
		for _, level := range []string{"-1", "6", "8", "10", "2147483647"} {
			var stderr bytes.Buffer
			status := Main(t.Context(), []string{command, "-v", level}, Streams{Out: io.Discard, Err: &stderr})
			want := fmt.Sprintf("capi-proxy-patcher: -v %s: use a level from 0 to 5; ", level)
			if status != exitUsage || !strings.HasPrefix(stderr.String(), want) {
				t.Errorf("%s -v %s: status %d: %s", command, level, status, stderr.String())
			}
		}
	}
}

func TestVerbosity_StopsAtTheHighestLevel(t *testing.T) {
	t.Parallel()
	for asked, highest := range map[int]int{0: 0, 2: 2, 5: 5, 6: 5, 10: 5, 1000: 5} {
		var out bytes.Buffer
		log := newLogger(asked, &out)
		for _, derived := range []logr.Logger{log, log.WithName("client-go").WithValues("a", "b")} {
			for level := range 12 {
				if enabled := derived.V(level).Enabled(); enabled != (level <= highest) {
					t.Errorf("asked for %d: level %d is enabled: %v", asked, level, enabled)
				}
			}
		}
	}
}
