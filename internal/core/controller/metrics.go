package controller

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// clusterState is the state of a Cluster after the last pass over it.
type clusterState struct {
	cluster        types.NamespacedName
	status, reason string
	behind         outdated.Behind
	expires        time.Time
	changed        time.Time
	objects        []tally
}

// tally is how many bootstrap objects have an outcome. A map of one takes 250 bytes.
type tally struct {
	outcome string
	count   int
}

// note remembers what a pass has reported. What a pass that ended early has not found out stays as it was.
func (m *memory) note(cluster client.Object, condition finding.Condition, done Result) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.states == nil {
		m.states = map[types.UID]clusterState{}
	}
	now := m.states[cluster.GetUID()]
	now.cluster, now.status, now.reason = client.ObjectKeyFromObject(cluster), condition.Status, condition.Reason
	if done.Behind != nil {
		now.behind, now.expires = outdated.Sum(*done.Behind), done.expires
		now.changed, now.objects = done.changed, tallies(done)
	}
	m.states[cluster.GetUID()] = now
}

// tallies counts the bootstrap objects of a pass.
func tallies(done Result) (all []tally) {
	for _, o := range slices.Concat(done.Reconciled, done.others) {
		i := slices.IndexFunc(all, func(t tally) bool { return t.outcome == o.outcome })
		switch {
		case o.outcome == "":
		case i < 0:
			all = append(all, tally{o.outcome, 1})
		default:
			all[i].count++
		}
	}
	return all
}

// Metrics collects the metrics of all Clusters. They are those of the last pass over each Cluster, so only the process
// that leads has any.
type Metrics struct {
	// Reporter reports about the Clusters.
	Reporter *Reporter
	// PerCluster adds metrics with the names of Clusters.
	PerCluster bool
}

// stateConfigured is the state of a bootstrap object that is as it should be. The others are outcomes of decisions.
const stateConfigured = "configured"

const prefix = "capi_proxy_patcher_"

// descriptions are those of the metrics, which docs/reference.md lists.
type descriptions struct {
	clusters, objects, behind, oldest, changed, expiry, cluster, clusterBehind *prometheus.Desc
}

func describe() descriptions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return descriptions{
		clusters: desc("clusters", "Clusters by status and reason of condition ProxyConfigured.", "status", "reason"),
		objects: desc("bootstrap_objects",
			"Bootstrap objects of Clusters with condition ProxyConfigured, by state.", "state"),
		changed: desc("secret_changed_timestamp_seconds",
			"When a value that nodes read last changed in a generated Secret, in seconds since 1970."),
		behind: desc("machines_behind", "Machines whose bootstrap data is not what a new Machine would get."),
		oldest: desc("machines_behind_oldest_timestamp_seconds",
			"When the oldest Machine that is behind was created, in seconds since 1970."),
		expiry: desc("trusted_ca_expiry_timestamp_seconds",
			"When the first certificate in a key trustedCA in use expires, in seconds since 1970."),
		cluster: desc("cluster_status", "1 for the status and reason that condition ProxyConfigured of a Cluster has.",
			"namespace", "name", "status", "reason"),
		clusterBehind: desc("cluster_machines_behind",
			"Machines of a Cluster whose bootstrap data is not what a new Machine would get.", "namespace", "name"),
	}
}

// Describe implements prometheus.Collector.
func (m Metrics) Describe(all chan<- *prometheus.Desc) {
	d := describe()
	for _, one := range []*prometheus.Desc{d.clusters, d.objects, d.behind, d.oldest, d.changed, d.expiry} {
		all <- one
	}
	if m.PerCluster {
		all <- d.cluster
		all <- d.clusterBehind
	}
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(metrics chan<- prometheus.Metric) {
	d, s := describe(), &m.Reporter.memory
	s.mutex.Lock()
	defer s.mutex.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	clusters, behind := map[[2]string]int{}, 0
	states := map[string]int{stateConfigured: 0, plan.OutcomeWaiting: 0, plan.OutcomeConflict: 0, plan.OutcomeLeftAlone: 0}
	var oldest, expiry, changed time.Time
	first := func(known *time.Time, other time.Time) {
		if !other.IsZero() && (known.IsZero() || other.Before(*known)) {
			*known = other
		}
	}
	for _, one := range s.states {
		clusters[[2]string{one.status, one.reason}]++
		behind += one.behind.Machines
		first(&oldest, one.behind.Oldest)
		first(&expiry, one.expires)
		if one.changed.After(changed) {
			changed = one.changed
		}
		for _, of := range one.objects {
			if of.outcome == plan.OutcomeChanged || of.outcome == plan.OutcomeUnchanged {
				of.outcome = stateConfigured
			}
			states[of.outcome] += of.count
		}
		if m.PerCluster {
			gauge(d.cluster, 1, one.cluster.Namespace, one.cluster.Name, one.status, one.reason)
			gauge(d.clusterBehind, float64(one.behind.Machines), one.cluster.Namespace, one.cluster.Name)
		}
	}
	for labels, count := range clusters {
		gauge(d.clusters, float64(count), labels[:]...)
	}
	for state, count := range states {
		gauge(d.objects, float64(count), state)
	}
	gauge(d.behind, float64(behind))
	if !changed.IsZero() {
		gauge(d.changed, float64(changed.Unix()))
	}
	if !oldest.IsZero() {
		gauge(d.oldest, float64(oldest.Unix()))
	}
	if !expiry.IsZero() {
		gauge(d.expiry, float64(expiry.Unix()))
	}
}
