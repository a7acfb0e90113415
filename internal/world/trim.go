package world

import (
	"bytes"

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

// generatedSecret keeps all data, and script once for all Secrets that have it.
func generatedSecret(script []byte) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		for key, value := range secret.Data {
			if bytes.Equal(value, script) {
				secret.Data[key] = script
			}
		}
	}
}

// proxySecret keeps the keys that package proxyconfig reads: everybody who may create a Secret can label it, and fill
// it.
func proxySecret(secret *corev1.Secret) {
	*secret = corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
			Labels: map[string]string{contract.LabelProxySecret: secret.Labels[contract.LabelProxySecret]},
		},
		Data: proxyconfig.Bound(secret.Data),
	}
}
