package manager

import (
	"bytes"
	"testing"

	"github.com/go-logr/logr"
)

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
