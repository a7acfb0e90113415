package manager

import (
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Options are the options of the manager.
type Options struct {
	// Kubeconfig is a kubeconfig file; empty means the Pod's service account.
	Kubeconfig string
	// Namespace limits the manager to one namespace; empty means all.
	Namespace string
	// DefaultProxySecret is the installation-wide proxy Secret as namespace/name; empty means none.
	DefaultProxySecret string
	// DefaultProxyNamespaces is the label selector of the namespaces whose Clusters may use its URLs and credentials;
	// empty selects none.
	DefaultProxyNamespaces string
	// LeaderElect elects a leader among replicas.
	LeaderElect bool
	// LeaderElectNamespace is the namespace of the lease; empty means the Pod's own.
	LeaderElectNamespace string
	// Concurrency is the maximum number of Clusters reconciled concurrently.
	Concurrency int
	// SyncPeriod is the interval at which every Cluster is reconciled even if nothing changed.
	SyncPeriod time.Duration
	// QPS and Burst limit requests to the API server.
	QPS   float32
	Burst int
	// HealthAddr and MetricsAddr are listening addresses; "0" disables one.
	HealthAddr, MetricsAddr string
	// MetricsPerCluster adds metrics with the names of Clusters.
	MetricsPerCluster bool
	// PprofAddr is where Go's profiles are served; "0" or "" disables them.
	PprofAddr string
	// WebhookPort is the port on which the webhooks listen; 0 disables them.
	WebhookPort int
	// WebhookBindAddress is the address on which they listen; empty means all.
	WebhookBindAddress string
	// WebhookCertDir is the folder with tls.crt and tls.key of the webhooks, which are read again when they change.
	// Empty disables the webhooks.
	WebhookCertDir string
	// Hooks configure where the runtime hooks are served; without a CertDir they are disabled.
	Hooks HookOptions
	// HoldClusterCreate is how long the creation of a Cluster with a ClusterClass may wait for its proxy Secret; 0
	// disables the wait.
	HoldClusterCreate time.Duration
	// Log receives the manager's logs.
	Log logr.Logger
	// Verbosity is the log level, 0 to 5.
	Verbosity int
}

// webhooks reports whether the options enable the webhooks.
func (o Options) webhooks() bool { return o.WebhookPort != 0 && o.WebhookCertDir != "" }

// hooks reports whether the options enable the runtime hooks.
func (o Options) hooks() bool { return o.Hooks.Port != 0 && o.Hooks.CertDir != "" }

// AddFlags adds the flags of the command manager to f.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to the Pod's service account")
	f.StringVar(&o.Namespace, "namespace", "",
		"serve only the Clusters of this namespace, in the controller, the webhooks and the hooks; defaults to all")
	f.StringVar(&o.DefaultProxySecret, "default-proxy-secret", "", "installation-wide proxy Secret as namespace/name; "+
		"its noProxy is merged into every Cluster's, and it serves Clusters without their own Secret in the namespaces of "+
		"--default-proxy-namespaces")
	f.StringVar(&o.DefaultProxyNamespaces, "default-proxy-namespaces", contract.LabelDefaultProxy+"="+
		contract.DefaultProxyAllowed, "label selector of the namespaces whose Clusters may use the URLs and credentials of "+
		"--default-proxy-secret, and whose readers of Secrets can therefore read them; empty selects none")
	f.BoolVar(&o.LeaderElect, "leader-elect", false, "elect a leader among replicas")
	f.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", "", "namespace of the lease; defaults to the Pod's own")
	f.IntVar(&o.Concurrency, "concurrency", 10, "maximum number of Clusters reconciled concurrently")
	f.DurationVar(&o.SyncPeriod, "sync-period", 10*time.Minute,
		"interval at which every Cluster is reconciled even if nothing changed")
	f.Float32Var(&o.QPS, "kube-api-qps", 100, "requests per second to the API server")
	f.IntVar(&o.Burst, "kube-api-burst", 200, "burst of requests to the API server")
	f.StringVar(&o.HealthAddr, "health-addr", ":8081", "address of /healthz and /readyz; 0 disables it")
	f.StringVar(&o.MetricsAddr, "metrics-addr", "0", "address of /metrics; 0 disables it")
	f.BoolVar(&o.MetricsPerCluster, "metrics-per-cluster", false,
		"add metrics with the names of Clusters, one or more for each Cluster")
	f.StringVar(&o.PprofAddr, "pprof-addr", "0", "address of /debug/pprof, Go's profiles; 0 disables it")
	f.IntVar(&o.WebhookPort, "webhook-port", 9443, "port of the webhooks; 0 disables them")
	f.StringVar(&o.WebhookBindAddress, "webhook-bind-address", "", "address on which the webhooks listen; defaults to all")
	f.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "",
		"folder with tls.crt and tls.key of the webhooks; without it there are none")
	f.IntVar(&o.Hooks.Port, "hook-port", 9444, "port of the runtime hooks; 0 disables them")
	f.StringVar(&o.Hooks.BindAddress, "hook-bind-address", "",
		"address on which the runtime hooks listen; defaults to all")
	f.StringVar(&o.Hooks.CertDir, "hook-cert-dir", "",
		"folder with tls.crt and tls.key of the runtime hooks; without it there are none")
	f.StringVar(&o.Hooks.ClientCAName, "hook-client-ca-name", "",
		"file in that folder with the CA certificates that client certificates of the runtime hooks "+
			"must be signed by; by default none is required")
	f.DurationVar(&o.HoldClusterCreate, "hold-cluster-create", time.Hour,
		"how long the creation of a Cluster with a ClusterClass waits for its proxy Secret; 0 disables the wait")
	f.IntVarP(&o.Verbosity, "v", "v", 2, "log level, 0 to 5")
}
