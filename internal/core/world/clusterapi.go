package world

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxProviders bounds how many providers of Cluster API are read.
const maxProviders = client.Limit(500)

// ClusterAPIVersion returns the version of Cluster API's core provider in the inventory of clusterctl, and "" if there
// is no such inventory.
func ClusterAPIVersion(ctx context.Context, api client.Reader) (string, error) {
	providers := &unstructured.UnstructuredList{}
	providers.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3", Kind: "ProviderList",
	})
	err := api.List(ctx, providers, maxProviders)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("listing providers of clusterctl: %w", err)
	}
	for _, provider := range providers.Items {
		if kind, _, _ := unstructured.NestedString(provider.Object, "type"); kind == "CoreProvider" {
			text, _, _ := unstructured.NestedString(provider.Object, "version")
			return text, nil
		}
	}
	return "", nil
}
