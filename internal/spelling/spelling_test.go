package spelling_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/spelling"
)

func TestNearest_IsTheNameThatWasProbablyMeant(t *testing.T) {
	t.Parallel()
	names := []string{"secret", "delivery", "rollout", "targets", "no-proxy-groups"}
	for word, want := range map[string]string{
		"secret": "secret", "Secrets": "secret", "rolout": "rollout", "noProxyGroup": "no-proxy-groups", "NO_PROXY_GROUPS": "no-proxy-groups",
		"target": "targets", "": "", "zebras": "", "delivrey": "delivery", "%s\n\"": "", "secret-of-mine": "",
	} {
		if got := spelling.Nearest(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if !spelling.Same("HTTP_PROXY", "httpProxy") || spelling.Same("httpProxy", "httpsProxy") {
		t.Error("letter case and _ count, or nothing does")
	}
	if got := spelling.Nearest("ab", []string{"axb", "abx"}); got != "axb" {
		t.Errorf("of two that are equally near: %q", got)
	}
	if got := spelling.Nearest("a", nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}
