package preview

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
)

// maxObjects is how many objects a preview may change.
const maxObjects = 1000

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
// A key of the product that the present object has and the file has not is removed, as are keys of a Secret.
func tryOut(ctx context.Context, api client.Client, namespace string,
	objects []unstructured.Unstructured,
) ([]client.Object, error) {
	tried := make([]client.Object, 0, len(objects))
	for i := range objects {
		object := &objects[i]
		if object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		stored, err := changeOf(api.Scheme(), object)
		if err != nil {
			return nil, err
		}
		key := client.ObjectKeyFromObject(object)
		switch err = api.Get(ctx, key, stored); {
		case apierrors.IsNotFound(err) && object.GetKind() == "Secret":
			if err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, stored); err == nil {
				err = api.Create(ctx, stored, client.DryRunAll)
			}
		case err == nil:
			var data []byte
			if data, err = mergePatch(stored, object); err == nil {
				err = api.Patch(ctx, stored, client.RawPatch(types.MergePatchType, data), client.DryRunAll)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("trying out %s %s: %w", object.GetKind(), key, err)
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
		return nil, fmt.Errorf("%s %s cannot be tried out; only a Cluster, a Secret, and annotations of a "+
			"MachineDeployment or MachinePool can", change.GetKind(), change.GetName())
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

// mergePatch returns the JSON merge patch that applies change to stored.
func mergePatch(stored client.Object, change *unstructured.Unstructured) ([]byte, error) {
	labels, _, err := unstructured.NestedStringMap(change.Object, "metadata", "labels")
	annotations, _, annotationsErr := unstructured.NestedStringMap(change.Object, "metadata", "annotations")
	if err = errors.Join(err, annotationsErr); err != nil {
		return nil, fmt.Errorf("reading metadata of %s %s: %w; quote values that YAML takes for other types",
			change.GetKind(), change.GetName(), err)
	}
	metadata := map[string]any{
		"labels":      replaced(stored.GetLabels(), labels, contract.UserLabels()),
		"annotations": replaced(stored.GetAnnotations(), annotations, contract.UserAnnotations()),
	}
	patch := map[string]any{"metadata": metadata}
	switch object := stored.(type) {
	case *corev1.Secret:
		data := map[string]any{}
		for key := range object.Data {
			data[key] = nil
		}
		given, _, err := unstructured.NestedMap(change.Object, "data")
		text, _, textErr := unstructured.NestedStringMap(change.Object, "stringData")
		if err = errors.Join(err, textErr); err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", change.GetName(), err)
		}
		maps.Copy(data, given)
		for key, value := range text {
			data[key] = base64.StdEncoding.EncodeToString([]byte(value))
		}
		patch["data"] = data
	case *kinds.Cluster:
		if spec, found := change.Object["spec"]; found {
			patch["spec"] = spec
		}
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding the change of %s: %w", change.GetName(), err)
	}
	return encoded, nil
}

// replaced returns the part of a merge patch that sets the keys of now, and removes the former ones that users set and
// that now has not.
func replaced(before, now map[string]string, users []string) map[string]any {
	keys := map[string]any{}
	for key := range before {
		if slices.Contains(users, key) {
			keys[key] = nil
		}
	}
	for key, value := range now {
		keys[key] = value
	}
	return keys
}
