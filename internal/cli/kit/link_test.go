package kit_test

import (
	"fmt"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

func TestLinks_NameEachSectionOnce(t *testing.T) {
	t.Parallel()
	found := finding.Errors{
		finding.Rejection("bad-cidr", finding.Place{}, "", ""),
		{Reason: contract.ReasonSettingsNotFound},
		finding.Rejection("bad-cidr", finding.Place{}, "", ""),
		{Message: "a note"},
		{Code: "x\nsee https://evil.example.com"},
		{Code: "a b"},
		{Code: "-"},
	}
	const page = "see https://github.com/capi-proxy-patcher/capi-proxy-patcher/blob/main/docs/troubleshooting.md"
	want := page + "#bad-cidr\n" + page + "#settingsnotfound\n"
	if got := kit.Links(kit.Sections(found)...); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := kit.Links(); got != "" {
		t.Errorf("got %q without names", got)
	}
	args := []any{found[1], 5, fmt.Errorf("reading: %w", found[:1])}
	if got := kit.Links(kit.Sections(kit.Among(args))...); got != page+"#settingsnotfound\n"+page+"#bad-cidr\n" {
		t.Errorf("among arguments got\n%s", got)
	}
}
