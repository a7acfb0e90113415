package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// fromAPI finds the Cluster in a management cluster. It reads the Cluster, the pool and the candidates for the proxy
// Secret by name, and lists the Clusters of the namespace only if no name is given or no Cluster has it. Bootstrap
// objects are read if mirrors are shown.
func (o explainOptions) fromAPI(ctx context.Context, streams Streams) (target, error) {
	if namespace, name, qualified := strings.Cut(o.cluster, "/"); qualified {
		o.namespace, o.cluster = namespace, name
	}
	config, namespace, err := loadKubeconfig(o.kubeconfig, o.context)
	if err != nil {
		return target{}, err
	}
	if o.namespace == "" {
		o.namespace = namespace
	}
	api, err := newReader(config)
	if err != nil {
		return target{}, err
	}
	cluster, err := o.getCluster(ctx, api)
	if err != nil {
		return target{}, err
	}
	// What the controller has read is in the generated Secret. This command asks for no kind of a provider.
	known := &world.Memory{Cached: api, Live: api, Mapper: meta.NewDefaultRESTMapper(nil)}
	t := target{cluster: settings.ClusterOf(cluster), secrets: known}
	t.cluster.Provisioned = false
	told, err := known.Facts(ctx, t.cluster)
	if err != nil {
		return target{}, err
	}
	t.cluster.Facts = told.Facts
	t.settings, t.invalid = settings.Of(cluster)
	t.cluster = t.settings.ApplyTo(t.cluster)
	if o.pool != "" {
		var found bool
		if t.override, found = topologyPool(t.settings, o.pool); !found {
			t.override, err = o.getPool(ctx, api, cluster.Name)
		}
	}
	if err == nil && o.mirrors {
		var unread error
		if t.bootstrap, unread = bootstrapOf(ctx, api, cluster, t.override); unread != nil {
			_, _ = fmt.Fprintf(streams.Err, "registry mirrors are not shown: %v\n", unread)
		}
	}
	return t, err
}

// loadKubeconfig reads a kubeconfig file, by default the one of $KUBECONFIG, and returns one of its contexts, by
// default the current one, and the namespace of that.
func loadKubeconfig(file, chosen string) (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: chosen})
	if config, err = loader.ClientConfig(); err == nil {
		namespace, _, err = loader.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading kubeconfig: %w", err)
	}
	return config, namespace, nil
}

// newReader returns a client without a cache. It has a fixed mapping of its few kinds and needs no discovery.
func newReader(config *rest.Config) (client.WithWatch, error) {
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

func (o explainOptions) getCluster(ctx context.Context, api client.Reader) (*clusterv1.Cluster, error) {
	if o.cluster != "" {
		cluster := &clusterv1.Cluster{}
		err := api.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.cluster}, cluster)
		if !apierrors.IsNotFound(err) {
			return cluster, reading(err, "Cluster", o.namespace, o.cluster)
		}
	}
	var clusters clusterv1.ClusterList
	if err := api.List(ctx, &clusters, client.InNamespace(o.namespace)); err != nil {
		return nil, fmt.Errorf("listing Clusters in namespace %s: %w", o.namespace, err)
	}
	names := make([]string, len(clusters.Items))
	for i, c := range clusters.Items {
		names[i] = c.Namespace + "/" + c.Name
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("explain: no Cluster in namespace %s; choose another with --namespace", o.namespace)
	}
	i, err := o.choose(names)
	if err != nil {
		return nil, err
	}
	return &clusters.Items[i], nil
}

// getPool returns the Secret that a pool names.
func (o explainOptions) getPool(ctx context.Context, api client.Reader, cluster string) (string, error) {
	key := client.ObjectKey{Namespace: o.namespace, Name: o.pool}
	deployment := &clusterv1.MachineDeployment{}
	err := api.Get(ctx, key, deployment)
	if err == nil && deployment.Spec.ClusterName == cluster {
		return deployment.Annotations[contract.AnnotationSecret], nil
	}
	if client.IgnoreNotFound(err) != nil {
		return "", reading(err, "MachineDeployment", o.namespace, o.pool)
	}
	pool := &clusterv1.MachinePool{}
	err = api.Get(ctx, key, pool)
	switch {
	case err == nil && pool.Spec.ClusterName == cluster:
		return pool.Annotations[contract.AnnotationSecret], nil
	case client.IgnoreNotFound(err) != nil:
		return "", reading(err, "MachinePool", o.namespace, o.pool)
	}
	return "", fmt.Errorf("explain: Cluster %s has neither a MachineDeployment nor a MachinePool %s",
		o.namespace+"/"+cluster, o.pool)
}

func reading(err error, kind, namespace, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading %s %s/%s: %w", kind, namespace, name, err)
}

// serverClock is the clock of the API server, as its answers show it: that of the user may be wrong. Its methods can be
// called concurrently.
type serverClock struct {
	mutex sync.Mutex
	ahead time.Duration
}

func (c *serverClock) now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return time.Now().Add(c.ahead) //nolint:forbidigo // the clock enters here
}

func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
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
