package reported

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
)

// ErrNotLabelled reports that a Cluster that is named has neither the label nor a condition of the product.
var ErrNotLabelled = errors.New("no labelled Cluster")

// Result is what Read has read.
type Result struct {
	Rows []Row
	// Version is that of the list of Clusters.
	Version string
	// NoSecrets reports that the generated Secrets may not be read, so that rows are incomplete.
	NoSecrets bool
}

// Read reads the labelled Clusters of a namespace in one request, and the metadata of their generated Secrets in
// another. "" is every namespace, and every Cluster.
func Read(ctx context.Context, api client.Reader, namespace, cluster string) (result Result, err error) {
	var clusters clusterv1.ClusterList
	if err := api.List(ctx, &clusters, Selected(namespace, cluster)...); err != nil {
		return result, fmt.Errorf("listing Clusters: %w", err)
	}
	generated := &metav1.PartialObjectMetadataList{}
	generated.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	options := []client.ListOption{client.InNamespace(namespace), client.HasLabels{contract.LabelGenerated}}
	if cluster != "" {
		options[1] = client.MatchingLabels{contract.LabelGenerated: cluster}
	}
	err = api.List(ctx, generated, options...)
	if result.NoSecrets = apierrors.IsForbidden(err); err != nil && !result.NoSecrets {
		return result, fmt.Errorf("listing generated Secrets: %w", err)
	}
	// A Cluster that is named counts without the label, too, until its condition is gone with the proxy.
	clusters.Items = slices.DeleteFunc(clusters.Items, func(c clusterv1.Cluster) bool {
		_, labelled := c.Labels[contract.LabelEnabled]
		return !labelled && !controller.HasCondition(&c)
	})
	if cluster != "" && len(clusters.Items) == 0 {
		return result, fmt.Errorf("%w %s in namespace %s", ErrNotLabelled, cluster, namespace)
	}
	result.Rows, result.Version = Rows(clusters.Items, generated.Items), clusters.ResourceVersion
	return result, nil
}

// Selected selects the Clusters that are read: the one that is named, else those with any value of the label.
func Selected(namespace, cluster string) []client.ListOption {
	if cluster != "" {
		return []client.ListOption{client.InNamespace(namespace), client.MatchingFields{"metadata.name": cluster}}
	}
	return []client.ListOption{client.InNamespace(namespace), client.HasLabels{contract.LabelEnabled}}
}
