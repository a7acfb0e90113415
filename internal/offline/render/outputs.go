package render

import (
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

type object = map[string]any

// OutputSecrets returns the manifests of the Secrets of a Cluster that have content, and last the ClusterResourceSet
// that delivers some of them, if there are any.
func OutputSecrets(cluster intent.Cluster, result publish.Result) []any {
	var objects []any
	var delivered []string
	for _, secret := range result.Secrets {
		if secret.Kept {
			continue
		}
		labels := object{}
		for key, value := range intent.SecretLabels(cluster) {
			labels[key] = value
		}
		for key, value := range secret.Labels {
			labels[key] = value
		}
		labels[contract.LabelOutput] = secret.Output
		metadata, kind := metadataOf(cluster, secret.Name, labels), "Opaque"
		if secret.Delivered != nil {
			kind = "addons.cluster.x-k8s.io/resource-set"
			metadata["annotations"] = object{contract.AnnotationOutput: secret.Delivered.String()}
			delivered = append(delivered, secret.Name)
		}
		objects = append(objects, object{
			"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": secret.Data,
		})
	}
	if len(delivered) > 0 {
		slices.Sort(delivered)
		objects = append(objects, set(cluster, delivered))
	}
	return objects
}

// set returns the ClusterResourceSet of the Cluster.
func set(cluster intent.Cluster, secrets []string) object {
	labels, resources := object{}, make([]object, len(secrets))
	for i, name := range secrets {
		resources[i] = object{"kind": "Secret", "name": name}
	}
	for key, value := range intent.SecretLabels(cluster) {
		labels[key] = value
	}
	return object{
		"apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet",
		"metadata": metadataOf(cluster, cluster.Name+contract.DeliverySuffix, labels),
		"spec": object{
			"clusterSelector": object{"matchLabels": object{contract.LabelDeliverTo: cluster.Name}},
			"strategy":        "Reconcile",
			"resources":       resources,
		},
	}
}

// metadata returns that of an object in the namespace of the Cluster.
func metadataOf(cluster intent.Cluster, name string, labels object) object {
	metadata := object{"name": name, "labels": labels}
	if cluster.Namespace != "" {
		metadata["namespace"] = cluster.Namespace
	}
	return metadata
}

// IsDelivered reports whether a result has something for the workload cluster.
func IsDelivered(result publish.Result) bool {
	return slices.ContainsFunc(result.Secrets, func(s publish.Secret) bool { return s.Delivered != nil && !s.Kept })
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
