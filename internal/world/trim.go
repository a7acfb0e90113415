package world

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// trim is the transform of a kind: it removes the fields of an object that no decision reads.
func trim[T metav1.Object](rest func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			rest(typed)
		}
		return kinds.Trim(object)
	}
}

// generatedSecret drops what no decision reads: everybody who may create Secrets can label one, and fill it. Unknown
// keys stay without their values, so that a pass removes them.
func generatedSecret(secret *corev1.Secret) {
	if ClusterOf(secret) == "" {
		*secret = bare(secret, contract.LabelGenerated, contract.LabelOutput)
	}
	for key := range secret.Data {
		if !IsOutput(secret) && !slices.Contains(contract.GeneratedKeys(), key) {
			secret.Data[key] = nil
		}
	}
}

// proxySecret keeps the keys that package proxyconfig reads: everybody who may create a Secret can label it, and fill
// it.
func proxySecret(secret *corev1.Secret) {
	data := proxyconfig.Bound(secret.Data)
	*secret = bare(secret, contract.LabelProxySecret)
	secret.Data = data
}

// bare returns a Secret without data, with the metadata that identifies it and with some labels.
func bare(secret *corev1.Secret, labels ...string) corev1.Secret {
	kept := map[string]string{}
	for _, label := range labels {
		if value, has := secret.Labels[label]; has {
			kept[label] = value
		}
	}
	return corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
		Labels: kept,
	}}
}
