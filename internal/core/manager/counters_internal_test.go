package manager

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/tables"
)

func TestCounters_CountByOutcome(t *testing.T) {
	t.Parallel()
	c := newCounters()
	c.rendered("webhook")("changed")
	c.rendered("webhook")("changed")
	c.resolved("Configured")
	for want, counter := range map[string]prometheus.Collector{
		`# HELP capi_proxy_patcher_renders_total Decisions about bootstrap objects, by who decided and by outcome.
# TYPE capi_proxy_patcher_renders_total counter
capi_proxy_patcher_renders_total{by="webhook",outcome="changed"} 2
`: c.renders,
		`# HELP capi_proxy_patcher_secret_resolutions_total Lookups of the proxy Secret of a Cluster or pool, by outcome.
# TYPE capi_proxy_patcher_secret_resolutions_total counter
capi_proxy_patcher_secret_resolutions_total{outcome="Configured"} 1
`: c.resolutions,
	} {
		if err := testutil.CollectAndCompare(counter, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.CollectAndLint(counter); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
	}
}

// TestTables_OfMetrics compares docs/reference.md.
func TestTables_OfMetrics(t *testing.T) {
	c := newCounters()
	for name, metrics := range map[string][]prometheus.Collector{
		"metrics of Clusters": {controller.Metrics{PerCluster: true}}, "metrics of each process": {c.renders, c.resolutions},
	} {
		descriptions := make(chan *prometheus.Desc, 100)
		for _, one := range metrics {
			one.Describe(descriptions)
		}
		close(descriptions)
		table := tables.Table{Page: "../../../docs/reference.md", Name: name, AnyOrder: true}
		for d := range descriptions {
			parts := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*)\}\}`).FindStringSubmatch(d.String())
			labels := "`" + strings.ReplaceAll(parts[2], ",", "`, `") + "`"
			table.Add("`"+parts[1]+"`", strings.TrimPrefix(labels, "``"))
		}
		table.Compare(t)
	}
}
