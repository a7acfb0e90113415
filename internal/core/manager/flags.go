package manager

import (
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Flags returns the flags of the command manager, in groups.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	o.addClusterFlags(groups.FlagSet("clusters"))
	o.addServerFlags(&groups)
	o.Election.addFlags(groups.FlagSet("leader election"))
	f := groups.FlagSet("TLS and diagnostics")
	o.Serving.addFlags(f)
	f.BoolVar(&o.MetricsPerCluster, "metrics-per-cluster", false,
		"add metrics with the names of Clusters, one or more for each Cluster")
	f.StringVar(&o.ProfilerAddress, "profiler-address", "0",
		"address of /debug/pprof/ over HTTP without authentication, for example localhost:6060; 0 disables it")
	o.Logging.addFlags(groups.FlagSet("logging"))
	o.addFeatureFlags(groups.FlagSet("feature"))
	for _, extension := range o.Extensions {
		extension.AddFlags(&groups)
	}
	return groups
}

func (o *Options) addClusterFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to the Pod's service account")
	f.StringVar(&o.Namespace, "namespace", "",
		"serve only the Clusters of this namespace, in the controller and the webhooks; defaults to all")
	f.StringVar(&o.WatchFilter, "watch-filter", "", "serve only Clusters whose label "+clusterv1.WatchLabel+
		" has this value, in the controller and the webhooks; defaults to all")
	f.StringVar(&o.DefaultProxySecret, "default-proxy-secret", "", "installation-wide proxy Secret as namespace/name; "+
		"its noProxy is merged into every Cluster's, and it serves Clusters without their own Secret in the namespaces of "+
		"--default-proxy-namespaces")
	f.StringVar(&o.DefaultProxyNamespaces, "default-proxy-namespaces", contract.LabelDefaultProxy+"="+
		contract.DefaultProxyAllowed, "label selector of the namespaces whose Clusters may use the URLs and credentials of "+
		"--default-proxy-secret, and whose readers of Secrets can therefore read them; empty selects none")
	f.IntVar(&o.Concurrency, "concurrency", 10, "maximum number of Clusters reconciled concurrently")
	f.DurationVar(&o.SyncPeriod, "sync-period", 10*time.Minute,
		"interval at which a Cluster is reconciled even if nothing changed")
	f.Float32Var(&o.QPS, "kube-api-qps", 100, "requests per second to the API server")
	f.IntVar(&o.Burst, "kube-api-burst", 200, "burst of requests to the API server")
}

func (o *Options) addServerFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("webhook")
	f.IntVar(&o.WebhookPort, "webhook-port", 9443, "port of the webhooks; 0 disables them")
	f.StringVar(&o.WebhookBindAddress, "webhook-bind-address", "", "address on which the webhooks listen; defaults to all")
	f.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "",
		"folder with the certificate and the key of the webhooks; empty: no webhooks")
	f.StringVar(&o.WebhookCertName, "webhook-cert-name", "tls.crt", "file of the certificate in that folder")
	f.StringVar(&o.WebhookKeyName, "webhook-key-name", "tls.key", "file of the key in that folder")
}

// Election configures the election of a leader among replicas.
type Election struct {
	// Enabled elects one.
	Enabled bool
	// Namespace is that of the lease; empty means the Pod's own.
	Namespace string
	// LeaseDuration, RenewDeadline and RetryPeriod are those of client-go; 0 means its defaults.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

func (o *Election) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.Enabled, "leader-elect", false, "elect a leader among replicas")
	f.StringVar(&o.Namespace, "leader-elect-namespace", "", "namespace of the lease; defaults to the Pod's own")
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"how long other replicas wait for a leader that no longer renews its lease")
	f.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"how long the leader tries to renew its lease before it exits")
	f.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second,
		"interval of tries to get or renew the lease")
}
