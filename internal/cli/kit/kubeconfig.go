package kit

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// LoadKubeconfig reads a kubeconfig file, by default the one of $KUBECONFIG, and returns one of its contexts, by
// default the current one, and the namespace of that.
func LoadKubeconfig(file, chosen string) (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: chosen})
	if config, err = loader.ClientConfig(); err == nil {
		namespace, _, err = loader.Namespace()
	}
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("point to an existing, complete config file: --kubeconfig, $KUBECONFIG or ~/.kube/config")
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading kubeconfig: %w", err)
	}
	return config, namespace, nil
}

// Unreachable says in the words of kubectl that a server does not answer.
func Unreachable(err *url.Error) string {
	server, parsed := url.Parse(err.URL)
	if parsed == nil && errors.Is(err, syscall.ECONNREFUSED) {
		return "the connection to the server " + server.Host + " was refused - did you specify the right host or port?"
	}
	return "unable to connect to the server: " + err.Err.Error()
}

// NewReader returns a client without a cache. It has a fixed mapping of its few kinds and needs no discovery.
func NewReader(config *rest.Config) (client.WithWatch, error) {
	scheme, err := world.Scheme()
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Cluster", "MachineDeployment", "MachinePool"} {
		mapper.Add(clusterv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(controlplanev1.GroupVersion.WithKind(plan.KindControlPlane), meta.RESTScopeNamespace)
	mapper.Add(bootstrapv1.GroupVersion.WithKind(plan.KindTemplate), meta.RESTScopeNamespace)
	mapper.Add(bootstrapv1.GroupVersion.WithKind(plan.KindConfig), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	// What says whether the installation works.
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{
		Group: "runtime.cluster.x-k8s.io", Version: "v1beta2", Kind: "ExtensionConfig",
	}, meta.RESTScopeRoot)
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	reader, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("setting up client: %w", err)
	}
	return reader, nil
}

// ServerClock is the clock of the API server, as its answers show it: that of the user may be wrong. Its methods can be
// called concurrently.
type ServerClock struct {
	mutex sync.Mutex
	ahead time.Duration
}

// Now returns the time of the last answer and what has passed since.
func (c *ServerClock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return time.Now().Add(c.ahead) //nolint:forbidigo // the clock enters here
}

// Wrap reads the clock in the answers to a transport.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil {
			return response, err //nolint:wrapcheck // it is the transport
		}
		if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			c.mutex.Lock()
			defer c.mutex.Unlock()
			c.ahead = time.Until(at)
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
