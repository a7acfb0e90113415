package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const component = "../../../config/components/monitoring/"

// rule is the part of an alert rule that is checked.
type rule struct {
	Alert, Expr string
	Annotations map[string]string
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ruleFile writes the groups of the PrometheusRule into a file as Prometheus reads it, and returns it and the rules.
func ruleFile(t *testing.T) (file string, found []rule) {
	t.Helper()
	var object struct {
		Spec struct {
			Groups []struct{ Rules []rule }
		}
	}
	var whole struct {
		Spec json.RawMessage
	}
	text := []byte(read(t, component+"alerts.yaml"))
	if err := yaml.UnmarshalStrict(text, &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, whole.Spec, 0o600); err != nil { // JSON is YAML
		t.Fatal(err)
	}
	for _, group := range object.Spec.Groups {
		found = append(found, group.Rules...)
	}
	return file, found
}

// firing evaluates all rules as promtool does, each step until a time, and returns the alerts that fire then.
func firing(t *testing.T, series string, step, at time.Duration) []string {
	t.Helper()
	file, _ := ruleFile(t)
	suite, err := promqltest.NewLazyLoader("load "+step.String()+"\n"+regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(strings.ReplaceAll(strings.TrimSpace(series), "\n\n", "\n"), "  $1"),
		promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = suite.Close() }()
	suite.SubqueryInterval = step
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()), Appendable: suite.Storage(),
		Context: t.Context(), NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(),
		Parser: parser.NewParser(parser.Options{}),
	})
	groups, problems := manager.LoadGroups(step, labels.EmptyLabels(), "", nil, false, file)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var found []string
	suite.WithSamplesTill(time.Unix(0, 0).Add(at), func(err error) {
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			for _, r := range group.Rules() {
				if alerting, ok := r.(*rules.AlertingRule); ok {
					alerting.SetRestored(true)
				}
			}
			for now := time.Unix(0, 0); !now.After(time.Unix(0, 0).Add(at)); now = now.Add(step) {
				group.Eval(suite.Context(), now)
				for _, r := range group.Rules() {
					if alerting, ok := r.(*rules.AlertingRule); ok && alerting.State() == rules.StateFiring {
						found = append(found, strings.TrimPrefix(alerting.Name(), "CapiProxyPatcher"))
					}
				}
			}
			for _, r := range group.Rules() {
				if err := r.LastError(); err != nil {
					t.Errorf("%s: %v", r.Name(), err)
				}
			}
		}
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// healthy is a fleet in which all is well, for 20 minutes of one sample each.
const healthy = `
leader_election_master_status{name="capi-proxy-patcher.io",pod="a"} 0x10000
leader_election_master_status{name="capi-proxy-patcher.io",pod="b"} 1x10000
`

func TestAlerts_FireWhenTheyShould(t *testing.T) {
	t.Parallel()
	const minute, hour = time.Minute, time.Hour
	for name, test := range map[string]struct {
		series   string
		step, at time.Duration
		want     []string
	}{
		"all is well": {
			healthy + `
capi_proxy_patcher_clusters{status="True",reason="Configured"} 1000x10000
capi_proxy_patcher_machines_behind 0x10000
controller_runtime_webhook_requests_total{pod="capi-proxy-patcher-controller-manager-1",webhook="/m",code="200"} 0+60x10000
controller_runtime_webhook_requests_total{pod="capi-proxy-patcher-controller-manager-1",webhook="/m",code="500"} 7x10000
controller_runtime_webhook_requests_total{pod="capi-controller-manager-1",webhook="/m",code="500"} 0+1x10000
apiserver_admission_webhook_rejection_count{name="x.capi-proxy-patcher.io",error_type="no_error"} 0+5x10000
apiserver_admission_webhook_fail_open_count{name="others.example.com"} 0+5x10000
capi_proxy_patcher_trusted_ca_expiry_timestamp_seconds 1e12x10000
certmanager_certificate_expiration_timestamp_seconds{name="capi-proxy-patcher-hooks-cert"} 1e12x10000
`, minute, 180 * minute, nil,
		},
		"a control plane waits for its user": {
			healthy + `capi_proxy_patcher_clusters{status="False",reason="WaitingForRollout"} 3x10000`, minute, 60 * minute, nil,
		},
		"webhooks fail": {
			healthy + `controller_runtime_webhook_requests_total{pod="capi-proxy-patcher-controller-manager-1",webhook="/m",code="500"} 0+1x10000`,
			minute, 12 * minute,
			[]string{"WebhooksFailing"},
		},
		"webhooks failed once": {
			healthy + `controller_runtime_webhook_requests_total{pod="capi-proxy-patcher-controller-manager-1",webhook="/m",code="500"} 0 0 1x10000`,
			minute, 30 * minute, nil,
		},
		"webhooks are passed by": {
			healthy + `apiserver_admission_webhook_fail_open_count{name="bootstrap.capi-proxy-patcher.io"} 0+1x10000`,
			minute, 12 * minute,
			[]string{"WebhooksUnreachable"},
		},
		"webhooks that must answer do not": {
			healthy + `apiserver_admission_webhook_rejection_count{name="bootstrap.capi-proxy-patcher.io",error_type="calling_webhook_error"} 0+1x10000`,
			minute, 12 * minute,
			[]string{"WebhooksUnreachable"},
		},
		"nobody leads": {
			`leader_election_master_status{name="capi-proxy-patcher.io",pod="a"} 0x10000`, minute, 6 * minute, []string{"NoLeader"},
		},
		"nobody is there":                {"up 1x10000", minute, 6 * minute, []string{"NoLeader"}},
		"nobody leads for three minutes": {"leader_election_master_status{name=\"capi-proxy-patcher.io\"} 0 0 0 1x10000", minute, 9 * minute, nil},
		"a Cluster is not configured, for a while": {
			healthy + `capi_proxy_patcher_clusters{status="False",reason="InvalidSettings"} 1x10000`, minute, 14 * minute, nil,
		},
		"a Cluster is not configured": {
			healthy + `capi_proxy_patcher_clusters{status="False",reason="InvalidSettings"} 1x10000`, minute, 16 * minute,
			[]string{"ClustersNotConfigured"},
		},
		"somebody reverts": {
			healthy + `capi_proxy_patcher_clusters{status="False",reason="Contested"} 2x10000`, minute, 20 * minute, []string{"Contested"},
		},
		"nodes are changed, one after the other": {
			healthy + `capi_proxy_patcher_clusters{status="Unknown",reason="InPlaceProgressing"} 1x10000` + "\n" +
				`capi_proxy_patcher_machines_behind 1000-1x10000`, minute, 300 * minute, nil,
		},
		"nodes are changed no longer": {
			healthy + `capi_proxy_patcher_clusters{status="Unknown",reason="InPlaceProgressing"} 1x10000` + "\n" +
				`capi_proxy_patcher_machines_behind 1000-1x9 991x10000`, minute, 130 * minute, []string{"InPlaceStuck"},
		},
		"a node cannot be changed": {
			healthy + `capi_proxy_patcher_clusters{status="False",reason="InPlaceFailed"} 1x10000`, minute, 16 * minute,
			[]string{"ClustersNotConfigured"},
		},
		"Machines are behind for six days":   {healthy + `capi_proxy_patcher_machines_behind 4x10000`, hour, 6 * 24 * hour, nil},
		"Machines are behind for seven days": {healthy + `capi_proxy_patcher_machines_behind 4x10000`, hour, 7*24*hour + 2*hour, []string{"MachinesBehind"}},
		"Machines are behind, and the leader changed": {
			healthy + `capi_proxy_patcher_machines_behind{pod="a"} 4x90 0x10000` + "\n" + `capi_proxy_patcher_machines_behind{pod="b"} 0x91 4x10000`,
			hour, 7*24*hour + 2*hour,
			[]string{"MachinesBehind"},
		},
		"Machines were behind, and are replaced": {
			healthy + `capi_proxy_patcher_machines_behind 4x100 0x10000`, hour, 8 * 24 * hour, nil,
		},
		"a trusted certificate expires": {
			healthy + `capi_proxy_patcher_trusted_ca_expiry_timestamp_seconds 2500000x10000`, hour, 3 * hour, []string{"TrustedCAExpiring"},
		},
		"a certificate of a server expires": {
			healthy + `certmanager_certificate_expiration_timestamp_seconds{name="capi-proxy-patcher-hooks-cert"} 600000x10000`, hour, 3 * hour,
			[]string{"CertificateExpiring"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := firing(t, test.series, test.step, test.at); !slices.Equal(got, test.want) {
				t.Errorf("%v fire, want %v", got, test.want)
			}
		})
	}
}

func TestAlerts_HaveARunbook(t *testing.T) {
	t.Parallel()
	page := read(t, "../../../docs/monitoring.md")
	_, found := ruleFile(t)
	if len(found) < 6 {
		t.Errorf("%d rules", len(found))
	}
	for _, r := range found {
		want := "https://github.com/capi-proxy-patcher/capi-proxy-patcher/blob/main/docs/monitoring.md#" + strings.ToLower(r.Alert)
		if r.Annotations["runbook_url"] != want {
			t.Errorf("the runbook of %s is %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !strings.Contains(page, "\n### "+r.Alert+"\n") {
			t.Errorf("docs/monitoring.md has no section %s", r.Alert)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^### (CapiProxyPatcher\w+)$`).FindAllStringSubmatch(page, -1) {
		if !slices.ContainsFunc(found, func(r rule) bool { return r.Alert == section[1] }) {
			t.Errorf("docs/monitoring.md has section %s, and there is no such alert", section[1])
		}
	}
}

// exists returns the metrics that exist: those of the product, which docs/reference.md lists and unit tests compare with
// it, and others that are in metrics.txt.
func exists(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, line := range regexp.MustCompile("(?m)^\\| `(capi_proxy_patcher_\\w+)` \\|").FindAllStringSubmatch(
		read(t, "../../../docs/reference.md"), -1) {
		known[line[1]] = true
	}
	if len(known) < 8 {
		t.Fatalf("docs/reference.md lists %d metrics", len(known))
	}
	for name := range strings.FieldsSeq(read(t, "metrics.txt")) {
		known[name] = true
	}
	return known
}

// metricsIn returns the metrics that a query selects.
func metricsIn(t *testing.T, query string) []string {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return nil
	}
	var names []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}

func checkMetrics(t *testing.T, where, query string, known, used map[string]bool) {
	t.Helper()
	// Other programs serve metrics of the same names: a label says whose they are.
	for _, selector := range regexp.MustCompile(`\b(apiserver|certmanager|controller_runtime|leader_election|rest_client|workqueue)_\w+(\{[^}]*\})?`).
		FindAllString(query, -1) {
		if !regexp.MustCompile(`(name|controller|pod)=~?"(\.\+)?(capi-proxy-patcher(\.io|-\.\+)|cluster-proxy\|cluster-outputs)"`).MatchString(selector) {
			t.Errorf("%s queries %s of every program", where, selector)
		}
	}
	for _, name := range metricsIn(t, query) {
		base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		if !known[name] && !known[base] {
			t.Errorf("%s queries %s, which does not exist", where, name)
		}
		used[name], used[base] = true, true
	}
}

func TestQueries_UseMetricsThatExist(t *testing.T) {
	t.Parallel()
	known, used := exists(t), map[string]bool{}
	_, found := ruleFile(t)
	for _, r := range found {
		checkMetrics(t, "alert "+r.Alert, r.Expr, known, used)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, component+"dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if len(dashboard.Panels) < 10 {
		t.Errorf("%d panels", len(dashboard.Panels))
	}
	taken := map[string]string{}
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("panel %s has no query", panel.Title)
		}
		for _, target := range panel.Targets {
			checkMetrics(t, "panel "+panel.Title, target.Expr, known, used)
		}
		for _, at := range []string{fmt.Sprint("position ", panel.GridPos.X, panel.GridPos.Y), fmt.Sprint("id ", panel.ID)} {
			if taken[at] != "" {
				t.Errorf("panels %s and %s have the same %s", taken[at], panel.Title, at)
			}
			taken[at] = panel.Title
		}
	}
	for name := range known {
		if !used[name] && !strings.HasPrefix(name, "capi_proxy_patcher_cluster_") {
			t.Errorf("%s is in no query", name)
		}
	}
}
