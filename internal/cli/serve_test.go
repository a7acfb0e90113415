package cli

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// TestHelp_GroupsTheFlagsOfServers finds every flag in one group.
func TestHelp_GroupsTheFlagsOfServers(t *testing.T) {
	t.Parallel()
	for command, groups := range map[string][]string{
		"manager": {
			"Clusters", "Webhook", "Leader election", "TLS and diagnostics", "Logging", "Feature", "Global",
		},
		"hooks": {"Runtime hook", "TLS and diagnostics", "Logging", "Global"},
	} {
		var out bytes.Buffer
		streams := kit.Streams{Out: &out, Err: io.Discard}
		if status := Main(t.Context(), []string{command, "--help"}, streams); status != kit.ExitDone {
			t.Errorf("exit status %d", status)
		}
		var found []string
		for line := range strings.Lines(out.String()) {
			if name, is := strings.CutSuffix(strings.TrimSpace(line), " flags:"); is {
				found = append(found, name)
			}
		}
		if !slices.Equal(found, groups) {
			t.Errorf("%s has groups %q, want %q", command, found, groups)
		}
		cmd, _, err := NewRoot(streams).Find([]string{command})
		if err != nil {
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if n := strings.Count(out.String(), " --"+f.Name+" "); n < 1 {
				t.Errorf("%s --%s is in no group", command, f.Name)
			}
		})
	}
}
