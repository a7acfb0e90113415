package finding_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

func TestNearest_IsTheNameThatWasProbablyMeant(t *testing.T) {
	t.Parallel()
	names := []string{"secret", "delivery", "rollout", "targets", "no-proxy-groups"}
	for word, want := range map[string]string{
		"secret": "secret", "Secrets": "secret", "rolout": "rollout", "noProxyGroup": "no-proxy-groups", "NO_PROXY_GROUPS": "no-proxy-groups",
		"target": "targets", "": "", "zebras": "", "delivrey": "delivery", "%s\n\"": "", "secret-of-mine": "",
	} {
		if got := finding.NearestName(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if !finding.SameName("HTTP_PROXY", "httpProxy") || finding.SameName("httpProxy", "httpsProxy") {
		t.Error("letter case and _ count, or nothing does")
	}
	if got := finding.NearestName("ab", []string{"axb", "abx"}); got != "axb" {
		t.Errorf("of two that are equally near: %q", got)
	}
	if got := finding.NearestName("a", nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}
