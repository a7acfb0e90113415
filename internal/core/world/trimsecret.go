package world

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// trimSecret is the transform of Secrets. It drops what no decision reads: everybody who may create Secrets can label
// one, and fill it. Of a generated Secret, unknown keys stay without their values, so that a pass removes them; of
// another, the keys that package settings reads.
func trimSecret(object any) (any, error) {
	secret, ok := object.(*corev1.Secret)
	switch {
	case !ok:
	case ClusterOf(secret) == "":
		kept := maps.Clone(secret.Labels)
		maps.DeleteFunc(kept, func(label, _ string) bool {
			return label != contract.LabelProxySecret && label != contract.LabelGenerated && label != contract.LabelOutput
		})
		*secret = corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
				Labels: kept,
			},
			Data: settings.Bound(secret.Data),
		}
	case !IsOutput(secret):
		for key := range secret.Data {
			if !slices.Contains(contract.GeneratedKeys(), key) {
				secret.Data[key] = nil
			}
		}
	}
	return kinds.Trim(object)
}
