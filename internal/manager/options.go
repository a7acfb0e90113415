package manager

import (
	"time"

	"github.com/go-logr/logr"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/diagnostics"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

// Options are the options of the manager.
type Options struct {
	// Kubeconfig is a kubeconfig file; empty means the Pod's service account.
	Kubeconfig string
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
	// SyncPeriod is the interval at which a Cluster is reconciled even if nothing changed; Resyncs is how many of them
	// pass if it is configured and everything is watched, 0 is 10.
	SyncPeriod time.Duration
	Resyncs    uint32
	// QPS and Burst limit requests to the API server.
	QPS   float32
	Burst int
	// HealthAddr is where probes are answered; "0" or "" disables it.
	HealthAddr string
	// DiagnosticsAddress is where metrics, profiles and the log level are served; "0" or "" disables it.
	DiagnosticsAddress string
	// InsecureDiagnostics serves only metrics there, without TLS, authentication and authorization.
	InsecureDiagnostics bool
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
	// TLS is what connections to all servers have to keep to.
	TLS TLSOptions
	// FeatureGates switches features on or off by name.
	FeatureGates map[string]bool
	// Logging configures the logs of Run.
	Logging Logging
	// Deliver delivers outputs to workload clusters with ClusterResourceSets.
	Deliver bool
	// NodeImage is the image that changes nodes in place; empty if that is not installed. It needs Deliver.
	NodeImage string
	// Log receives the manager's logs.
	Log logr.Logger
	// Level is the level of Log, which diagnostics change; nil if it cannot change.
	Level diagnostics.Level
}

// scope returns the Clusters that the manager serves.
func (o Options) scope() intent.Scope {
	return intent.Scope{Namespace: o.Namespace, WatchFilter: o.WatchFilter}
}

// webhooks reports whether the options enable the webhooks.
func (o Options) webhooks() bool { return o.WebhookPort != 0 && o.WebhookCertDir != "" }
