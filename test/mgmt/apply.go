package mgmt

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// FieldOwner is the field manager under which ApplyKustomize owns what it applies.
const FieldOwner = client.FieldOwner("capi-proxy-patcher-test")

// ApplyKustomize builds a kustomization as kubectl apply -k does and applies every object, Namespaces first, with
// server-side apply, except certificates and webhook configurations, which need Pods. It does not wait for anything, and stops at the first object that the API server refuses.
func (c *Cluster) ApplyKustomize(ctx context.Context, dir string) error {
	objects, err := Kustomize(dir)
	if err != nil {
		return err
	}
	applier, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return fmt.Errorf("applying %s: %w", dir, err)
	}
	for _, object := range objects {
		if needsPods(object) {
			continue
		}
		// Apply writes the answer of the server into its argument, so the name is taken before.
		name := fmt.Sprintf("%s %s", object.GetKind(), client.ObjectKeyFromObject(object))
		if err := applier.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), FieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s of %s: %w", name, dir, err)
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
		content, err := resource.Map()
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", dir, err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects, nil
}
