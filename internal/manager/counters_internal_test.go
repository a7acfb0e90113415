package manager

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/server"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/tables"
)

func TestCounters_CountByOutcome(t *testing.T) {
	t.Parallel()
	c := newCounters()
	c.addServer("webhooks", func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Unix(3000, 0)}}, nil
	})
	c.addServer("hooks", func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") })
	c.rendered("webhook")("changed")
	c.rendered("webhook")("changed")
	c.resolved("Configured")
	c.answered("webhooks", "/mutate", server.OutcomeOf(200), time.Second)
	c.answered("webhooks", "", server.OutcomeOf(404), time.Second)
	c.answered("hooks", "/x", server.OutcomeOf(503), time.Minute)
	const want = `# HELP capi_proxy_patcher_certificate_expiry_timestamp_seconds When the certificate that a server uses expires, in seconds since 1970.
# TYPE capi_proxy_patcher_certificate_expiry_timestamp_seconds gauge
capi_proxy_patcher_certificate_expiry_timestamp_seconds{server="webhooks"} 3000
# HELP capi_proxy_patcher_renders_total Decisions about bootstrap objects, by who decided and by outcome.
# TYPE capi_proxy_patcher_renders_total counter
capi_proxy_patcher_renders_total{by="webhook",outcome="changed"} 2
# HELP capi_proxy_patcher_secret_resolutions_total Lookups of the proxy Secret of a Cluster or pool, by outcome.
# TYPE capi_proxy_patcher_secret_resolutions_total counter
capi_proxy_patcher_secret_resolutions_total{outcome="Configured"} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "capi_proxy_patcher_certificate_expiry_timestamp_seconds",
		"capi_proxy_patcher_renders_total", "capi_proxy_patcher_secret_resolutions_total"); err != nil {
		t.Error(err)
	}
	if count := testutil.CollectAndCount(c, "capi_proxy_patcher_answer_duration_seconds"); count != 3 {
		t.Errorf("%d series of answers", count)
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no network") }

func TestCounters_CountWritesByResource(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "conflict") {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	t.Cleanup(server.Close)
	c := newCounters()
	send := func(transport http.RoundTripper, method, path string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := c.wrap(transport).RoundTrip(request); err == nil {
			_ = response.Body.Close()
		}
	}
	const caps = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/one"
	send(http.DefaultTransport, http.MethodGet, caps)
	send(http.DefaultTransport, http.MethodPatch, caps)
	send(http.DefaultTransport, http.MethodPatch, caps+"/status")
	send(http.DefaultTransport, http.MethodPost, "/api/v1/namespaces/team-a/secrets")
	send(http.DefaultTransport, http.MethodPut, "/api/v1/namespaces/team-a/secrets/conflict")
	send(broken{}, http.MethodDelete, "/api/v1/namespaces/team-a/secrets/x")
	for _, path := range []string{"/", "/api", "/api/v1", "/api/v1/namespaces", "/apis/evil.io/v1/namespaces/a/" + strings.Repeat("x", 99)} {
		send(http.DefaultTransport, http.MethodPost, path)
	}
	const want = `# HELP capi_proxy_patcher_writes_total Writes to the API server, by resource, verb and outcome.
# TYPE capi_proxy_patcher_writes_total counter
capi_proxy_patcher_writes_total{outcome="done",resource="clusters",verb="patch"} 1
capi_proxy_patcher_writes_total{outcome="done",resource="clusters/status",verb="patch"} 1
capi_proxy_patcher_writes_total{outcome="done",resource="other",verb="create"} 5
capi_proxy_patcher_writes_total{outcome="done",resource="secrets",verb="create"} 1
capi_proxy_patcher_writes_total{outcome="failed",resource="secrets",verb="delete"} 1
capi_proxy_patcher_writes_total{outcome="refused",resource="secrets",verb="update"} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "capi_proxy_patcher_writes_total"); err != nil {
		t.Error(err)
	}
}

// TestTables_OfMetrics compares docs/reference.md.
func TestTables_OfMetrics(t *testing.T) {
	for name, metrics := range map[string]prometheus.Collector{
		"metrics of Clusters": report.Metrics{PerCluster: true}, "metrics of each process": newCounters(),
	} {
		descriptions := make(chan *prometheus.Desc, 100)
		metrics.Describe(descriptions)
		close(descriptions)
		table := tables.Table{Page: "../../docs/reference.md", Name: name, AnyOrder: true}
		for d := range descriptions {
			parts := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*)\}\}`).FindStringSubmatch(d.String())
			labels := "`" + strings.ReplaceAll(parts[2], ",", "`, `") + "`"
			table.Add("`"+parts[1]+"`", strings.TrimPrefix(labels, "``"))
		}
		table.Compare(t)
	}
}
