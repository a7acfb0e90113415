package preview

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxObjects is how many objects a preview may change.
	maxObjects = 1000
	// fieldOwner is that of kubectl apply --server-side, so that a preview removes what that would remove.
	fieldOwner client.FieldOwner = "kubectl"
)

// ReadChanges reads the objects of a stream of YAML or JSON documents. Empty documents are skipped.
func ReadChanges(from io.Reader) ([]unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(from, 4096)
	var objects []unstructured.Unstructured
	for {
		var object unstructured.Unstructured
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("parsing document %d: %w", len(objects)+1, err)
		case len(object.Object) == 0:
			continue
		}
		if objects = append(objects, object); len(objects) > maxObjects {
			return nil, fmt.Errorf("more than %d objects", maxObjects)
		}
	}
}

// tryOut returns the objects that the API server would store if they were applied, from a dry run through all webhooks.
func tryOut(ctx context.Context, api client.Client, namespace string,
	objects []unstructured.Unstructured,
) ([]client.Object, error) {
	tried := make([]client.Object, 0, len(objects))
	for i := range objects {
		object := objects[i].DeepCopy()
		if object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		object.SetResourceVersion("") // the file may be older
		object.SetManagedFields(nil)  // an apply with them is refused
		stored, err := changeOf(api.Scheme(), object)
		if err != nil {
			return nil, err
		}
		data, err := object.MarshalJSON()
		if err == nil {
			stored.SetNamespace(object.GetNamespace())
			stored.SetName(object.GetName())
			err = api.Patch(ctx, stored, client.RawPatch(types.ApplyPatchType, data), client.DryRunAll, client.ForceOwnership,
				fieldOwner)
		}
		if err != nil {
			return nil, fmt.Errorf("trying out %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
		tried = append(tried, stored)
	}
	return tried, nil
}

// changeOf returns an empty object of the type of a change.
func changeOf(scheme *runtime.Scheme, change *unstructured.Unstructured) (client.Object, error) {
	kind := change.GroupVersionKind()
	switch kind.GroupKind() {
	case corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(),
		clusterv1.GroupVersion.WithKind("Cluster").GroupKind(),
		clusterv1.GroupVersion.WithKind("MachineDeployment").GroupKind(),
		clusterv1.GroupVersion.WithKind("MachinePool").GroupKind():
	default:
		return nil, fmt.Errorf("%s %s cannot be tried out; only a Cluster, a Secret, a MachineDeployment or a MachinePool "+
			"can", change.GetKind(), change.GetName())
	}
	if !scheme.Recognizes(kind) {
		return nil, fmt.Errorf("%s %s has apiVersion %s; use %s", change.GetKind(), change.GetName(),
			change.GetAPIVersion(), clusterv1.GroupVersion)
	}
	object, err := scheme.New(kind)
	typed, ok := object.(client.Object)
	if err != nil || !ok {
		return nil, fmt.Errorf("making an object of kind %s: %w", kind, err)
	}
	return typed, nil
}
