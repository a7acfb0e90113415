package render

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

type object = map[string]any

// OutputSecrets returns the manifests of the Secrets of a Cluster that have content.
func OutputSecrets(cluster settings.Cluster, result publish.Result) []any {
	var objects []any
	for _, secret := range result.Secrets {
		if secret.Kept || secret.Delivered != nil {
			continue
		}
		labels := object{}
		for key, value := range settings.SecretLabels(cluster) {
			labels[key] = value
		}
		for key, value := range secret.Labels {
			labels[key] = value
		}
		labels[contract.LabelOutput] = secret.Output
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

// WorkloadStreams returns the objects for the workload cluster as streams of YAML, as they are delivered.
func WorkloadStreams(result publish.Result) [][]byte {
	var streams [][]byte
	for _, secret := range result.Secrets {
		if secret.Delivered == nil || secret.Kept {
			continue
		}
		for _, stream := range secret.Data { // one key
			streams = append(streams, stream)
		}
	}
	return streams
}
