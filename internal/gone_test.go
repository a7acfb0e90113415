package internal_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// gone is what the product does not have any more, a line or more for each part.
var gone = [][]string{
	{
		`in-place-replace`, `InPlaceReplace`, `ReplaceFiles`, `capi-proxy-patcher/replaced`,
	},
	{
		`--hook-`, `"hook-(port|cert|bind|client)`, `hold-cluster-create`, `client-ca-name`, `manager-hooks`,
		`hooks of the manager`, `before-cluster-create`, `BeforeClusterCreate`,
	},
	{
		`Inline delivery`, "[Dd]elivery `?Inline", `Reference delivery`, "[Dd]elivery `?Reference",
		`capi-proxy-patcher\.io/delivery`, `AnnotationDelivery`, `settings-hash`, `waiting-for-control-plane-endpoint`,
		`DELIVERY `,
	},
	{
		`capi-proxy-patcher\.io/adopt`, `AnnotationAdopt`, `adopted-files`, `secret-too-large`,
	},
	{`TargetKubeadm`, `containerd,kubelet,kubeadm`},
	{
		`internal/expiring`, `controller/passes`, `controller/contest`, `every tenth interval`,
		`report/steady`, `agent/settle`,
	},
	{`names of Secrets are watched`},
	{
		`hack/(scale|bench|measure|rooms|testsummary|licences)\b`, `hack/load/bounds`, `bench-growth`, `bench-baseline`,
	},
	{
		`internal/(counters|host|nodescript|version)\b`, `controller/(caches|owners)\b`, `publish/nodes\b`,
	},
	{
		`--deliver\b`, `components/deliver`, `LabelDeliverTo`, `/deliver-to`, `DeliveryNotInstalled`, `digest-key`,
		`ClusterResourceSet`,
	},
	{`NodeChange\b`, `PrintRestarts`, "`restarted`", `"restarted"`},
	{`mergePatch\(`},
	{`secret-encrypted`, `HiddenError`, `settings\.Hidden`, `values\.TrustOnly`},
	{`last-pass`, `LastPass`, `STALE`, `"stale"`},
	{`--for management`, `--provider-namespace`, `ProviderComponent`},
	{`test-kyverno`, `engines/(kyverno|istio|gitops)`},
	{`(?i)\bsarif`},
	{`--publish-for`},
	{`internal/server\b`, `HasMore`, `maxWords`},
	{
		`answer_duration_seconds`, `capi_proxy_patcher_writes_total`, `patcher_certificate_expiry_timestamp_seconds`,
	},
	{`internal/diagnostics`, `TokenReviewer`, `--diagnostics-cert`},
}

// TestGone_IsNamedNowhere looks for them in documentation, manifests, RBAC, templates, and the program with its flags.
// Decisions and the changelog may say what was taken out.
func TestGone_IsNamedNowhere(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(strings.Join(slices.Concat(gone...), "|"))
	for _, root := range []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "cmd", "config", "docs", "internal", "templates"} {
		eachFile(t, "../"+root, func(path string) {
			if strings.HasPrefix(path, "../docs/development/adr/") || strings.HasSuffix(path, "_test.go") {
				return
			}
			for i, line := range strings.Split(read(t, path), "\n") {
				if found := pattern.FindString(line); found != "" {
					t.Errorf("%s:%d: %q is gone", path, i+1, found)
				}
			}
		})
	}
}
