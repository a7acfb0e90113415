package render

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

type object = map[string]any

// outputSecrets returns the manifests of the Secrets of a Cluster.
func outputSecrets(cluster settings.Cluster, secrets []kit.PublishedSecret) []any {
	objects := make([]any, 0, len(secrets))
	for _, secret := range secrets {
		labels := object{}
		for key, value := range settings.SecretLabels(cluster) {
			labels[key] = value
		}
		for key, value := range secret.Labels {
			labels[key] = value
		}
		objects = append(objects, object{
			"apiVersion": "v1", "kind": "Secret", "metadata": metadataOf(cluster, secret.Name, labels), "type": "Opaque",
			"data": secret.Data,
		})
	}
	return objects
}

// metadata returns that of an object in the namespace of the Cluster.
func metadataOf(cluster settings.Cluster, name string, labels object) object {
	metadata := object{"name": name, "labels": labels}
	if cluster.Namespace != "" {
		metadata["namespace"] = cluster.Namespace
	}
	return metadata
}
