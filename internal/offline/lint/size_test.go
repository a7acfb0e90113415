package lint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

func TestLint_FindsValuesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: ''}}\nstringData:\n  httpProxy: http://p:1\n  trustedCA: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(pki.Bundle(t, 1_060_000)), "\n", "\n    ") + "\n"
	o := options(secret, goodCluster)
	if diff := cmp.Diff([]string{"1.yaml:6 Secret team/http-proxy key trustedCA value-too-large"}, places(t, o, "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err := render.Render(t.Context(), render.Options{Inputs: o.Inputs})
	if err == nil || !strings.Contains(err.Error(), "Secret team/http-proxy, key trustedCA: longer than ") {
		t.Errorf("render: error %v", err)
	}
}
