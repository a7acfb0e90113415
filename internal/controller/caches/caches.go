// Package caches defines which objects of the management cluster the manager caches, in which form, and with which
// indexes. Fields that no decision reads are dropped.
package caches

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/nodescript"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/slim"
)

// NewScheme returns the scheme of the kinds that the controller reads and writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme,
		addonsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building scheme: %w", err)
		}
	}
	return scheme, nil
}

// Options returns the options of the manager's cache: of every object only what decisions read (package slim), and of
// Secrets only those that the product generated, which nobody may change that reads one. namespace limits it to one
// namespace if not empty. resync is for Clusters; no other kind has one. Reading a kind that is not watched fails
// instead of starting a watch. deliver adds our ClusterResourceSets, and what Cluster API has applied of them.
func Options(namespace string, resync time.Duration, deliver bool) (cache.Options, error) {
	generated, err := exists(contract.LabelGenerated)
	if err != nil {
		return cache.Options{}, err
	}
	script := []byte(nodescript.Setup())
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		SyncPeriod:                  new(time.Duration), // controllers enqueue a Cluster at its own resync
		DefaultTransform:            kept(slim.Metadata),
		ByObject: map[client.Object]cache.ByObject{
			// A pass reads the Secret of a Cluster some thirty times, and what is written is always another object.
			&corev1.Secret{}: {
				Label: generated, Transform: kept(func(secret *corev1.Secret) { slim.Secret(secret, script) }),
				UnsafeDisableDeepCopy: new(true),
			},
		},
	}
	for _, k := range kinds() {
		by := cache.ByObject{Transform: kept(slim.Kept.Keep)}
		if _, isCluster := k.object.(*clusterv1.Cluster); isCluster {
			by.SyncPeriod = &resync
		}
		options.ByObject[k.kept()] = by
	}
	if deliver {
		options.ByObject[&addonsv1.ClusterResourceSet{}] = cache.ByObject{Transform: kept(slim.ClusterResourceSet)}
		options.ByObject[&addonsv1.ClusterResourceSetBinding{}] = cache.ByObject{Transform: kept(slim.Binding)}
	}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	return options, nil
}

// ProxySecretOptions returns the options of the cache of labelled proxy Secrets. One selector cannot select either of
// two labels, hence a separate cache. namespace limits it to one namespace, and the one of the installation-wide
// Secret, if not empty.
func ProxySecretOptions(namespace, defaultNamespace string, scheme *runtime.Scheme) (cache.Options, error) {
	labelled, err := exists(contract.LabelProxySecret)
	if err != nil {
		return cache.Options{}, err
	}
	options := cache.Options{
		Scheme:                      scheme,
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            kept(slim.Metadata),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Label: labelled, Transform: kept(proxySecret)},
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

// proxySecret keeps what package proxyconfig reads: everybody who may create a Secret can label it, and fill it.
func proxySecret(secret *corev1.Secret) {
	*secret = corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
			Labels: map[string]string{contract.LabelProxySecret: secret.Labels[contract.LabelProxySecret]},
		},
		Data: proxyconfig.Bound(secret.Data),
	}
}

// otherTypes are the types of Secrets that are never proxy Secrets without the label, and make up almost all Secrets of
// a management cluster.
func otherTypes() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector("type", string(clusterv1.ClusterSecretType)),
		fields.OneTermNotEqualSelector("type", "helm.sh/release.v1"),
		fields.OneTermNotEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)),
		fields.OneTermNotEqualSelector("type", string(corev1.SecretTypeBootstrapToken)),
	)
}

// SecretNameOptions returns the options of the cache of the names of all other Secrets, by which a Secret that does not
// exist costs no request. namespace is that of ProxySecretOptions.
func SecretNameOptions(namespace, defaultNamespace string, scheme *runtime.Scheme) (cache.Options, error) {
	options, err := ProxySecretOptions(namespace, defaultNamespace, scheme)
	if err != nil {
		return options, err
	}
	notGenerated, err := labels.NewRequirement(contract.LabelGenerated, selection.DoesNotExist, nil)
	if err != nil {
		return options, fmt.Errorf("building selector: %w", err)
	}
	options.ByObject = map[client.Object]cache.ByObject{
		lookup.SecretMetadata(): {
			Label: labels.NewSelector().Add(*notGenerated), Field: otherTypes(), Transform: kept(slim.Name),
		},
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

// kept is the transform of a kind: keep removes from an object what no decision reads.
func kept[T metav1.Object](keep func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			keep(typed)
		}
		return object, nil
	}
}
