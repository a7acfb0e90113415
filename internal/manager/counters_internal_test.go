package manager

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/server"
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

// TestReference_ListsTheMetricsThatExist compares both ways, so that queries can be checked against the reference.
func TestReference_ListsTheMetricsThatExist(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, described []string
	for _, line := range regexp.MustCompile("(?m)^\\| `(capi_proxy_patcher_\\w+)` \\|").FindAllStringSubmatch(string(reference), -1) {
		listed = append(listed, line[1])
	}
	descriptions := make(chan *prometheus.Desc, 100)
	newCounters().Describe(descriptions)
	report.Metrics{PerCluster: true}.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		described = append(described, name)
	}
	slices.Sort(listed)
	slices.Sort(described)
	if diff := cmp.Diff(described, listed); diff != "" {
		t.Errorf("docs/reference.md (-exist +listed):\n%s", diff)
	}
}
