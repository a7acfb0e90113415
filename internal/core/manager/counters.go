package manager

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// counters count decisions about bootstrap objects and lookups of proxy Secrets. No label names an object of a user, so
// their number is bounded.
type counters struct{ renders, resolutions *prometheus.CounterVec }

// newCounters returns counters at zero.
func newCounters() *counters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "capi_proxy_patcher_" + name, Help: help}, labels)
	}
	return &counters{
		renders: counter("renders_total", "Decisions about bootstrap objects, by who decided and by outcome.", "by",
			"outcome"),
		resolutions: counter("secret_resolutions_total", "Lookups of the proxy Secret of a Cluster or pool, by outcome.",
			"outcome"),
	}
}

// register serves the counters beside those of controller-runtime.
func (c *counters) register() error {
	if err := errors.Join(metrics.Registry.Register(c.renders), metrics.Registry.Register(c.resolutions)); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// rendered counts decisions about bootstrap objects. by is controller, webhook or hook.
func (c *counters) rendered(by string) func(outcome string) {
	return func(outcome string) { c.renders.WithLabelValues(by, outcome).Inc() }
}

// resolved counts a lookup of a proxy Secret. outcome is a reason of the condition.
func (c *counters) resolved(outcome string) { c.resolutions.WithLabelValues(outcome).Inc() }
