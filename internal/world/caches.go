package world

import (
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
)

// Scheme returns the scheme of the kinds that the controller reads and writes. Callers must not change it.
var Scheme = sync.OnceValues(func() (*runtime.Scheme, error) { //nolint:gochecknoglobals // a constant
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kinds.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	return scheme, nil
})

// CacheOptions returns the options of the manager's cache: of every object only what decisions read (kinds.Trim), and
// of Secrets only the generated ones, which readers must not change. namespace limits it to one
// namespace if not empty. resync is for Clusters; no other kind has one. Reading a kind that is not watched fails
// instead of starting a watch.
func CacheOptions(namespace string, resync time.Duration) (cache.Options, error) {
	generated, err := exists(contract.LabelGenerated)
	if err != nil {
		return cache.Options{}, err
	}
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		SyncPeriod:                  new(time.Duration), // controllers enqueue a Cluster at its own resync
		DefaultTransform:            kinds.Trim,
		ByObject: map[client.Object]cache.ByObject{
			// A pass reads the Secret of a Cluster some thirty times, and what is written is always another object.
			&corev1.Secret{}: {
				Label: generated, Transform: trim(generatedSecret), UnsafeDisableDeepCopy: new(true),
			},
			&clusterv1.Cluster{}: {SyncPeriod: &resync},
		},
	}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	return options, nil
}

// ProxySecretCacheOptions returns the options of the cache of labelled proxy Secrets. One selector cannot select either
// of two labels, hence a separate cache. namespace limits it to one namespace, and the one of the installation-wide
// Secret, if not empty.
func ProxySecretCacheOptions(namespace, defaultNamespace string, scheme *runtime.Scheme) (cache.Options, error) {
	labelled, err := exists(contract.LabelProxySecret)
	if err != nil {
		return cache.Options{}, err
	}
	options := cache.Options{
		Scheme:                      scheme,
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            kinds.Trim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Label: labelled, Transform: trim(proxySecret)},
		},
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
