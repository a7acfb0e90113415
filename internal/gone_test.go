package internal_test

import (
	"regexp"
	"strings"
	"testing"
)

// gone is what the product does not have any more, by a phrase of the sentence in docs/scope.md that says what to do
// instead. What users never saw has none.
var gone = []struct {
	phrase string
	names  []string
}{
	{"replaced files of yours on running nodes", []string{
		`in-place-replace`, `InPlaceReplace`, `ReplaceFiles`, `capi-proxy-patcher/replaced`,
	}},
	{"Hooks inside the manager", []string{
		`--hook-`, `"hook-(port|cert|bind|client)`, `hold-cluster-create`, `client-ca-name`, `manager-hooks`,
		`hooks of the manager`, `before-cluster-create`, `BeforeClusterCreate`,
	}},
	{"delivery `Inline`", []string{
		`Inline delivery`, "[Dd]elivery `?Inline", `Reference delivery`, "[Dd]elivery `?Reference",
		`capi-proxy-patcher\.io/delivery`, `AnnotationDelivery`, `settings-hash`, `waiting-for-control-plane-endpoint`,
		`DELIVERY `,
	}},
	{"takes over no file of yours", []string{
		`capi-proxy-patcher\.io/adopt`, `AnnotationAdopt`, `adopted-files`, `secret-too-large`,
	}},
	{"Target `kubeadm`", []string{`TargetKubeadm`, `containerd,kubelet,kubeadm`}},
	{"bring no reconcile", []string{
		`internal/expiring`, `controller/passes`, `controller/contest`, `every tenth interval`,
		`report/steady`, `agent/settle`,
	}},
	{"a proxy Secret without the label the moment", []string{`names of Secrets are watched`}},
	{"", []string{
		`hack/(scale|bench|measure|rooms|testsummary|licences)\b`, `hack/load/bounds`, `bench-growth`, `bench-baseline`,
	}},
	{"", []string{
		`internal/(counters|host|nodescript|version)\b`, `controller/(caches|owners)\b`, `publish/nodes\b`,
	}},
	{"by ClusterResourceSets", []string{
		`--deliver\b`, `components/deliver`, `LabelDeliverTo`, `/deliver-to`, `DeliveryNotInstalled`, `digest-key`,
		`ClusterResourceSet`,
	}},
	{"Files and services of each node in", []string{`NodeChange\b`, `PrintRestarts`, "`restarted`", `"restarted"`}},
	{"Merge patches of our own in `plan -f`", []string{`mergePatch\(`}},
	{"Checks of a SealedSecret, an ExternalSecret", []string{`secret-encrypted`, `HiddenError`, `settings\.Hidden`, `values\.TrustOnly`}},
	{"A proof in annotation `last-pass`", []string{`last-pass`, `LastPass`, `STALE`, `"stale"`}},
	{"for the providers of the management cluster", []string{`--for management`, `--provider-namespace`, `ProviderComponent`}},
	{"Tests in the engines of", []string{`test-kyverno`, `engines/(kyverno|istio|gitops)`}},
	{"code review tools", []string{`(?i)\bsarif`}},
	{"flag of `render` for the objects of a workload", []string{`--publish-for`}},
	{"Servers of our own with bounds", []string{`internal/server\b`, `HasMore`, `maxWords`}},
	{"Metrics of our own for requests", []string{
		`answer_duration_seconds`, `capi_proxy_patcher_writes_total`, `patcher_certificate_expiry_timestamp_seconds`,
	}},
	{"Flags of our own for certificates and ciphers", []string{`internal/diagnostics`, `TokenReviewer`, `--diagnostics-cert`}},
}

// TestGone_IsNamedNowhere looks for them in documentation, manifests, RBAC, templates, and the program with its flags.
// Decisions, the changelog and the page about the scope may say what was taken out.
func TestGone_IsNamedNowhere(t *testing.T) {
	t.Parallel()
	var names []string
	for _, g := range gone {
		names = append(names, g.names...)
	}
	pattern := regexp.MustCompile(strings.Join(names, "|"))
	for _, root := range []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "cmd", "config", "docs", "internal", "templates"} {
		eachFile(t, "../"+root, func(path string) {
			if path == "../docs/scope.md" || strings.HasPrefix(path, "../docs/development/adr/") || strings.HasSuffix(path, "_test.go") {
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

func TestGone_HasASentenceInDocsScope(t *testing.T) {
	t.Parallel()
	text := strings.Join(strings.Fields(read(t, "../docs/scope.md")), " ")
	for _, g := range gone {
		if !strings.Contains(text, g.phrase) {
			t.Errorf("docs/scope.md does not say what to do instead of %v: no %q", g.names, g.phrase)
		}
	}
}
