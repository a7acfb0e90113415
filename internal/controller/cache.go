package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/nodescript"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/slim"
)

// The indexes of the cache that nobody else uses.
const (
	// indexCluster finds MachineDeployments and MachinePools by their Cluster.
	indexCluster = "spec.clusterName"
	// indexSecret finds Clusters and pools by the names of the proxy Secrets that may serve them.
	indexSecret = "proxySecret"
)

// NewScheme returns the scheme of the kinds that the controller reads and writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building scheme: %w", err)
		}
	}
	return scheme, nil
}

// CacheOptions returns the options of the manager's cache: of every object what decisions read (package slim),
// and of all Secrets only those that the product generated. namespace limits it to one namespace if not empty.
// A read of a kind that nobody watches fails instead of starting a watch.
func CacheOptions(namespace string, resync time.Duration) (cache.Options, error) {
	generated, err := exists(contract.LabelGenerated)
	if err != nil {
		return cache.Options{}, err
	}
	script := []byte(nodescript.Setup())
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		SyncPeriod:                  &resync,
		DefaultTransform:            kept(slim.Metadata),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Label: generated, Transform: kept(func(secret *corev1.Secret) { slim.Secret(secret, script) })},

			&clusterv1.Cluster{}:                  {Transform: kept(slim.Cluster)},
			&clusterv1.MachineDeployment{}:        {Transform: kept(slim.Deployment)},
			&clusterv1.MachinePool{}:              {Transform: kept(slim.Pool)},
			&controlplanev1.KubeadmControlPlane{}: {Transform: kept(slim.ControlPlane)},
			&bootstrapv1.KubeadmConfigTemplate{}:  {Transform: kept(slim.Template)},
			&bootstrapv1.KubeadmConfig{}:          {Transform: kept(slim.Config)},
		},
	}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	return options, nil
}

// ProxySecretCacheOptions returns the options of the cache of labelled proxy Secrets. One selector cannot ask for
// either of two labels, hence a cache of their own.
// namespace limits it to one namespace, and the one of the installation-wide Secret, if not empty.
func ProxySecretCacheOptions(namespace, defaultNamespace string, scheme *runtime.Scheme) (cache.Options, error) {
	labelled, err := exists(contract.LabelProxySecret)
	if err != nil {
		return cache.Options{}, err
	}
	options := cache.Options{
		Scheme:                      scheme,
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            kept(slim.Metadata),
		ByObject:                    map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labelled}},
	}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
		if defaultNamespace != "" {
			options.DefaultNamespaces[defaultNamespace] = cache.Config{}
		}
	}
	return options, nil
}

func exists(label string) (labels.Selector, error) {
	requirement, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("building selector: %w", err)
	}
	return labels.NewSelector().Add(*requirement), nil
}

// kept is the transform of a kind: keep takes out of an object what no decision looks at.
func kept[T metav1.Object](keep func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			keep(typed)
		}
		return object, nil
	}
}

// SetupIndexes gives a cache the indexes that the controller and the webhooks look things up by.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		field  string
		values client.IndexerFunc
	}{
		{&clusterv1.Cluster{}, lookup.IndexControlPlane, func(object client.Object) []string {
			cluster, ok := object.(*clusterv1.Cluster)
			if !ok || cluster.Spec.ControlPlaneRef.Kind != plan.KindControlPlane {
				return nil
			}
			return []string{cluster.Spec.ControlPlaneRef.Name}
		}},
		{&clusterv1.Cluster{}, indexSecret, secretNames},
		{&bootstrapv1.KubeadmConfigTemplate{}, indexTopology, topologyOf},
		{&clusterv1.MachineDeployment{}, indexCluster, poolIndex(func(p plan.Pool) string { return p.Cluster })},
		{&clusterv1.MachinePool{}, indexCluster, poolIndex(func(p plan.Pool) string { return p.Cluster })},
		{&clusterv1.MachineDeployment{}, lookup.IndexBootstrap, poolIndex(func(p plan.Pool) string { return p.Bootstrap.Name })},
		{&clusterv1.MachinePool{}, lookup.IndexBootstrap, poolIndex(func(p plan.Pool) string { return p.Bootstrap.Name })},
		{&clusterv1.MachineDeployment{}, indexSecret, poolIndex(func(p plan.Pool) string { return p.Override })},
		{&clusterv1.MachinePool{}, indexSecret, poolIndex(func(p plan.Pool) string { return p.Override })},
		{&bootstrapv1.KubeadmConfigTemplate{}, indexPatchedFor, patchedFor},
		{&bootstrapv1.KubeadmConfig{}, lookup.IndexLabel, labelIndex(clusterv1.ClusterNameLabel)},
		{&corev1.Secret{}, lookup.IndexLabel, labelIndex(contract.LabelGenerated)},
		{machineMetadata(), lookup.IndexLabel, labelIndex(clusterv1.ClusterNameLabel)},
	} {
		if err := indexer.IndexField(ctx, index.object, index.field, index.values); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

// machineMetadata is the form in which Machines are watched.
func machineMetadata() *metav1.PartialObjectMetadata {
	machine := &metav1.PartialObjectMetadata{}
	machine.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	return machine
}

func labelIndex(label string) client.IndexerFunc {
	return func(object client.Object) []string {
		if value := object.GetLabels()[label]; value != "" {
			return []string{value}
		}
		return nil
	}
}

func poolIndex(value func(plan.Pool) string) client.IndexerFunc {
	return func(object client.Object) []string {
		if v := value(plan.PoolOf(object)); v != "" {
			return []string{v}
		}
		return nil
	}
}
