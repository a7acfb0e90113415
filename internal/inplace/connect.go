package workload

import (
	"context"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// callTime is how long one request to a workload cluster may take, watches excepted.
const callTime = 5 * time.Second

// concurrency is how many workload clusters are connected to, or probed, at once. Those that do not answer take
// seconds.
const concurrency = 50

// SetupWithManager adds the connections to mgr. live reads from the API server of the management cluster.
func SetupWithManager(
	ctx context.Context, mgr manager.Manager, live client.Reader, scope settings.Scope,
) (clustercache.ClusterCache, error) {
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:  kubeconfigs{Reader: live},
		ClusterFilter: func(cluster *clusterv1.Cluster) bool { return isConnected(cluster, scope) },
		Cache: clustercache.CacheOptions{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         byObject(),
		},
		Client: clustercache.ClientOptions{
			Timeout: callTime, UserAgent: contract.Name + "/" + contract.CurrentBuild().Version,
		},
	}, controller.Options{MaxConcurrentReconciles: concurrency})
	if err != nil {
		return nil, fmt.Errorf("setting up connections to workload clusters: %w", err)
	}
	return clusters, nil
}

// isConnected reports whether the workload cluster of a Cluster is connected to.
func isConnected(cluster *clusterv1.Cluster, scope settings.Scope) bool {
	if !cluster.DeletionTimestamp.IsZero() || !scope.Has(cluster.Namespace, cluster.Labels) {
		return false
	}
	return settings.IsEnabled(cluster.Labels) &&
		cluster.Annotations[contract.AnnotationRollout] == contract.RolloutInPlace ||
		settings.Restores(cluster.Labels, cluster.Annotations) &&
			cluster.Annotations[contract.AnnotationApplied] != contract.RestoredValue
}

// byObject limits what is cached of a workload cluster: our Pods, and of Nodes what TrimNode keeps.
func byObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{contract.NodesNamespace: {}},
			Transform:  keep(TrimPod),
		},
		&corev1.Node{}: {Transform: keep(TrimNode)},
	}
}

func keep[T metav1.Object](keep func(T)) func(any) (any, error) {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			keep(typed)
		}
		return object, nil
	}
}

// kubeconfigs reads Secrets with kubeconfigs, refuses those that refuse names, because a user of one namespace may have
// written the Secret, and disables compression in the others.
type kubeconfigs struct{ client.Reader }

// Get implements client.Reader.
func (k kubeconfigs) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	options ...client.GetOption,
) error {
	if err := k.Reader.Get(ctx, key, into, options...); err != nil {
		return err //nolint:wrapcheck // it is the reader
	}
	secret, ok := into.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("reading kubeconfig of Secret %s: %T is no Secret", key, into)
	}
	config, err := clientcmd.Load(secret.Data["value"])
	if err != nil {
		return refused("reading kubeconfig of Secret %s: key value cannot be parsed", key) // the text may have secrets
	}
	if why := refuse(config); why != "" {
		return refused("reading kubeconfig of Secret %s: %s", key, why)
	}
	// A megabyte of gzip can be a gigabyte of memory.
	for _, cluster := range config.Clusters {
		cluster.DisableCompression = true
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		return refused("reading kubeconfig of Secret %s: it cannot be encoded", key) // the text may have secrets
	}
	secret.Data = map[string][]byte{"value": text}
	return nil
}

// RESTConfig returns how to connect to the workload cluster of a Cluster, by its Secret with a kubeconfig. It refuses
// what the manager refuses.
func RESTConfig(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (*rest.Config, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig"}
	if err := (kubeconfigs{Reader: reader}).Get(ctx, key, secret); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, refused("reading kubeconfig of Secret %s: it cannot be used", key) // the text may have secrets
	}
	return config, nil
}

// refuse returns why the manager does not connect with a kubeconfig, or "". It refuses files and programs, which are
// those of its own Pod: a file could be its token. It connects to nothing but the server, by TLS, and sends requests
// only to who has a certificate of the kubeconfig's own authority: client-go follows redirects. A proxy of the
// kubeconfig would get a request in plain text, whatever listens there. tls-server-name, impersonation, tokens and
// passwords reach only that server, and are used.
func refuse(config *clientcmdapi.Config) string {
	const embed = "field %s refers to something in the Pod of the manager; embed the data instead"
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		switch {
		case cluster.CertificateAuthority != "":
			return fmt.Sprintf(embed, "certificate-authority")
		case cluster.ProxyURL != "":
			return "field proxy-url is refused; give the manager a proxy in its environment"
		case cluster.InsecureSkipTLSVerify:
			return "field insecure-skip-tls-verify is refused; give certificate-authority-data"
		case err != nil || server.Scheme != "https" || server.Host == "":
			return "field server is not an https URL"
		case len(cluster.CertificateAuthorityData) == 0:
			return "field certificate-authority-data is missing"
		}
	}
	for _, user := range config.AuthInfos {
		switch {
		case user.ClientCertificate != "":
			return fmt.Sprintf(embed, "client-certificate")
		case user.ClientKey != "":
			return fmt.Sprintf(embed, "client-key")
		case user.TokenFile != "":
			return fmt.Sprintf(embed, "tokenFile")
		case user.Exec != nil:
			return fmt.Sprintf(embed, "exec")
		case user.AuthProvider != nil:
			return fmt.Sprintf(embed, "auth-provider")
		}
	}
	return ""
}
