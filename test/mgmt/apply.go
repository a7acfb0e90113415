package mgmt

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// FieldOwner is the field manager under which Apply owns what it applies.
const FieldOwner = client.FieldOwner("capi-proxy-patcher-test")

// ApplyKustomize builds a kustomization as kubectl apply -k does and applies every object, Namespaces first, with
// server-side apply, except certificates and webhook configurations, which need Pods. It does not wait for anything,
// and stops at the first object that the API server refuses.
func (c *Cluster) ApplyKustomize(ctx context.Context, dir string) error {
	objects, err := Kustomize(dir)
	if err != nil {
		return err
	}
	applier, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return fmt.Errorf("applying %s: %w", dir, err)
	}
	if err := Apply(ctx, applier, slices.DeleteFunc(objects, needsPods)); err != nil {
		return fmt.Errorf("installing %s: %w", dir, err)
	}
	return nil
}

// Apply applies objects in order with server-side apply, and does not modify them.
func Apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		// Apply writes the answer of the server into its argument.
		configuration := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		if err := c.Apply(ctx, configuration, FieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// Kustomize builds a kustomization and returns its objects in the order in which kubectl apply -k applies them.
func Kustomize(dir string) ([]*unstructured.Unstructured, error) {
	opts := krusty.MakeDefaultOptions()
	opts.Reorder = krusty.ReorderOptionLegacy
	resources, err := krusty.MakeKustomizer(opts).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", dir, err)
	}
	objects := make([]*unstructured.Unstructured, 0, resources.Size())
	for _, resource := range resources.Resources() {
		// Resources have other types of numbers than Kubernetes.
		text, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", dir, err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			return nil, fmt.Errorf("building %s: %w", dir, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
