// Package outputs makes what a command prints of published values: the objects of package publish as manifests, and the
// outputs that no controller writes. It is pure.
package outputs

import (
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// Outputs that only commands print.
const (
	// Istio is a ServiceEntry for each proxy.
	Istio = "istio"
	// TKG are the Secrets with the settings of TKG's add-ons, to be merged by hand.
	TKG = "tkg"
)

// Values are what outputs are made of.
type Values struct {
	// Cluster is the Cluster in the manifests.
	Cluster intent.Cluster
	// Input are its values.
	Input publish.Input
}

type object = map[string]any

// Split separates the outputs that only commands print from a list of outputs. In the rest they are empty entries that
// are dropped, so that positions in findings about the rest are right unless one of them stands in front.
func Split(list string) (printed []string, rest string) {
	var others []string
	for entry := range strings.SplitSeq(list, ",") {
		if name := strings.TrimSpace(entry); name == Istio || name == TKG {
			if !slices.Contains(printed, name) {
				printed = append(printed, name)
			}
		} else {
			others = append(others, entry)
		}
	}
	return printed, strings.Join(others, ",")
}

// Secrets returns the manifests of the Secrets that have content, and last the ClusterResourceSet that delivers some of
// them, if there are any.
func (v Values) Secrets(result publish.Result) []any {
	var objects []any
	var delivered []string
	for _, secret := range result.Secrets {
		if secret.Kept {
			continue
		}
		labels := object{}
		for key, value := range intent.SecretLabels(v.Cluster) {
			labels[key] = value
		}
		for key, value := range secret.Labels {
			labels[key] = value
		}
		labels[contract.LabelOutput] = secret.Output
		metadata, kind := v.metadata(secret.Name, labels), "Opaque"
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
		objects = append(objects, v.set(delivered))
	}
	return objects
}

// set returns the ClusterResourceSet of the Cluster.
func (v Values) set(secrets []string) object {
	labels, resources := object{}, make([]object, len(secrets))
	for i, name := range secrets {
		resources[i] = object{"kind": "Secret", "name": name}
	}
	for key, value := range intent.SecretLabels(v.Cluster) {
		labels[key] = value
	}
	return object{
		"apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet",
		"metadata": v.metadata(v.Cluster.Name+contract.DeliverySuffix, labels),
		"spec": object{
			"clusterSelector": object{"matchLabels": object{contract.LabelDeliverTo: v.Cluster.Name}},
			"strategy":        "Reconcile",
			"resources":       resources,
		},
	}
}

// metadata returns that of an object in the namespace of the Cluster.
func (v Values) metadata(name string, labels object) object {
	metadata := object{"name": name, "labels": labels}
	if v.Cluster.Namespace != "" {
		metadata["namespace"] = v.Cluster.Namespace
	}
	return metadata
}

// IsDelivered reports whether a result has something for the workload cluster.
func IsDelivered(result publish.Result) bool {
	return slices.ContainsFunc(result.Secrets, func(s publish.Secret) bool { return s.Delivered != nil && !s.Kept })
}

// Workload returns the objects for the workload cluster as streams of YAML, as they are delivered.
func Workload(result publish.Result) [][]byte {
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
