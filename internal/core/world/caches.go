package world

import (
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
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
// of Secrets only those with contract.LabelProxySecret, which readers must not change. namespace limits it to one
// namespace if not empty, and Secrets to this and, of the namespace of the installation-wide one, those that are not
// generated: they are of Clusters that are not cached. resync is for Clusters; no other kind has one. Reading a kind
// that is not watched fails instead of starting a watch.
func CacheOptions(namespace, installation string, resync time.Duration) (cache.Options, error) {
	labelled, err := labels.Parse(contract.LabelProxySecret)
	others, otherErr := labels.Parse(contract.LabelProxySecret + ",!" + contract.LabelGenerated)
	if err = errors.Join(err, otherErr); err != nil {
		return cache.Options{}, fmt.Errorf("building selector: %w", err)
	}
	// A pass reads the Secret of a Cluster some thirty times, and what is written is always another object.
	secrets := cache.ByObject{Label: labelled, Transform: trimSecret, UnsafeDisableDeepCopy: new(true)}
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		SyncPeriod:                  new(time.Duration), // controllers enqueue a Cluster at its own resync
		DefaultTransform:            kinds.Trim,
	}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
		if installation != "" {
			secrets.Namespaces = map[string]cache.Config{installation: {LabelSelector: others}, namespace: {}}
		}
	}
	options.ByObject = map[client.Object]cache.ByObject{
		&corev1.Secret{}: secrets, &clusterv1.Cluster{}: {SyncPeriod: &resync},
	}
	return options, nil
}
