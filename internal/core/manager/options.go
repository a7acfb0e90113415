package manager

import (
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// Options are the options of the manager.
type Options struct {
	Serving

	// Namespace limits the manager to one namespace; empty means all.
	Namespace string
	// WatchFilter limits the manager to Clusters whose label cluster.x-k8s.io/watch-filter has this value; empty means
	// all.
	WatchFilter string
	// DefaultProxySecret is the installation-wide proxy Secret as namespace/name; empty means none.
	DefaultProxySecret string
	// DefaultProxyNamespaces is the label selector of the namespaces whose Clusters may use its URLs and credentials;
	// empty selects none.
	DefaultProxyNamespaces string
	// Election is that of a leader.
	Election Election
	// Concurrency is the maximum number of Clusters reconciled concurrently.
	Concurrency int
	// SyncPeriod is the interval at which a Cluster is reconciled even if nothing changed.
	SyncPeriod time.Duration
	// QPS and Burst limit requests to the API server.
	QPS   float32
	Burst int
	// MetricsPerCluster adds metrics with the names of Clusters.
	MetricsPerCluster bool
	// ProfilerAddress is where Go's profiles are served without authentication; "0" or "" disables it.
	ProfilerAddress string
	// WebhookPort is the port on which the webhooks listen; 0 disables them.
	WebhookPort int
	// WebhookBindAddress is the address on which they listen; empty means all.
	WebhookBindAddress string
	// WebhookCertDir is the folder with the certificate and the key of the webhooks, which are read again when they
	// change. Empty disables the webhooks.
	WebhookCertDir string
	// WebhookCertName and WebhookKeyName are the files in it; empty means tls.crt and tls.key.
	WebhookCertName, WebhookKeyName string
	// FeatureGates switches features on or off by name.
	FeatureGates map[string]bool
	// Extensions are the capabilities that run beside the core.
	Extensions []Extension
}

// scope returns the Clusters that the manager serves.
func (o Options) scope() settings.Scope {
	return settings.Scope{Namespace: o.Namespace, WatchFilter: o.WatchFilter}
}

// webhooks reports whether the options enable the webhooks.
func (o Options) webhooks() bool { return o.WebhookPort != 0 && o.WebhookCertDir != "" }
