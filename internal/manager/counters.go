package manager

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/server"
)

const prefix = "capi_proxy_patcher_"

// counters count what this process does: answers of its servers, decisions about bootstrap objects, lookups of proxy
// Secrets and writes. No label names an object of a user, so their number is bounded.
type counters struct {
	answers     *prometheus.HistogramVec
	renders     *prometheus.CounterVec
	resolutions *prometheus.CounterVec
	writes      *prometheus.CounterVec
	expiry      *prometheus.Desc
	servers     map[string]certificate
}

// newCounters returns counters at zero.
func newCounters() *counters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	return &counters{
		answers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "answer_duration_seconds",
			Help: "Time from a request of a webhook or hook to its answer, by path and outcome.",
			// The API server waits 5 s for a webhook, Cluster API 10 s for a hook.
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10},
		}, []string{"server", "path", "outcome"}),
		renders: counter("renders_total", "Decisions about bootstrap objects, by who decided and by outcome.", "by",
			"outcome"),
		resolutions: counter("secret_resolutions_total", "Lookups of the proxy Secret of a Cluster or pool, by outcome.",
			"outcome"),
		writes: counter("writes_total", "Writes to the API server, by resource, verb and outcome.", "resource", "verb",
			"outcome"),
		expiry: prometheus.NewDesc(prefix+"certificate_expiry_timestamp_seconds",
			"When the certificate that a server uses expires, in seconds since 1970.", []string{"server"}, nil),
		servers: map[string]certificate{},
	}
}

// Describe implements prometheus.Collector.
func (c *counters) Describe(all chan<- *prometheus.Desc) {
	for _, one := range []prometheus.Collector{c.answers, c.renders, c.resolutions, c.writes} {
		one.Describe(all)
	}
	all <- c.expiry
}

// Collect implements prometheus.Collector.
func (c *counters) Collect(metrics chan<- prometheus.Metric) {
	for _, one := range []prometheus.Collector{c.answers, c.renders, c.resolutions, c.writes} {
		one.Collect(metrics)
	}
	for name, get := range c.servers {
		if certificate, err := get(nil); err == nil && certificate.Leaf != nil {
			at := float64(certificate.Leaf.NotAfter.Unix())
			metrics <- prometheus.MustNewConstMetric(c.expiry, prometheus.GaugeValue, at, name)
		}
	}
}

// addServer adds a server, before metrics are collected. get returns the certificate that it uses.
func (c *counters) addServer(name string, get certificate) { c.servers[name] = get }

// certificate is tls.Config.GetCertificate. It is called with nil.
type certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// answered counts an answer of a server. path is one that has a handler, or "".
func (c *counters) answered(server, path, outcome string, took time.Duration) {
	c.answers.WithLabelValues(server, path, outcome).Observe(took.Seconds())
}

// rendered counts decisions about bootstrap objects. by is controller, webhook or hook.
func (c *counters) rendered(by string) func(outcome string) {
	return func(outcome string) { c.renders.WithLabelValues(by, outcome).Inc() }
}

// resolved counts a lookup of a proxy Secret. outcome is a reason of the condition.
func (c *counters) resolved(outcome string) { c.resolutions.WithLabelValues(outcome).Inc() }

// resources are the kinds that the program writes. Any other counts as other.
func resources() []string {
	return []string{
		"clusters", "machinedeployments", "kubeadmcontrolplanes", "kubeadmconfigtemplates", "kubeadmconfigs", "secrets",
		"events", "leases", "configmaps", "tokenreviews", "subjectaccessreviews", "clusterresourcesets",
	}
}

// wrap counts the writes that go through next.
func (c *counters) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			outcome := server.Failed
			if err == nil {
				outcome = server.OutcomeOf(response.StatusCode)
			}
			c.writes.WithLabelValues(resourceOf(r.URL.Path), verbOf(r.Method), outcome).Inc()
		}
		return response, err //nolint:wrapcheck // it is that of the transport
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// resourceOf is the resource in a path of the API server, with /status for its status.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := 2 // api, v1
	if parts[0] == "apis" {
		skip = 3 // and the group
	}
	if len(parts) > skip+1 && parts[skip] == "namespaces" {
		skip += 2
	}
	if len(parts) <= skip || !slices.Contains(resources(), parts[skip]) {
		return "other"
	}
	if len(parts) == skip+3 && parts[skip+2] == "status" {
		return parts[skip] + "/status"
	}
	return parts[skip]
}

func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	default:
		return "other"
	}
}
