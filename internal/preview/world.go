package preview

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
)

// world reads one namespace as the controller's caches show it, each kind with one list. Objects that are changed in
// the preview take the place of those in the namespace.
type world struct {
	live      client.Client
	namespace string
	// changed are the objects that the preview changes or adds.
	changed []client.Object
	// indexes are the functions of the controller's indexes.
	indexes map[index]client.IndexerFunc
	// known are the objects of the kinds that were read.
	known map[string][]client.Object
}

type index struct{ kind, field string }

// lists are those by which kinds are read that the controller caches. Of Secrets it caches the generated ones.
func lists() map[string]client.ObjectList {
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	return map[string]client.ObjectList{
		"Cluster": &kinds.ClusterList{}, "MachineDeployment": &kinds.MachineDeploymentList{},
		"MachinePool": &kinds.MachinePoolList{}, "Machine": machines, "Secret": &corev1.SecretList{},
		"KubeadmControlPlane":   &kinds.KubeadmControlPlaneList{},
		"KubeadmConfigTemplate": &kinds.KubeadmConfigTemplateList{}, "KubeadmConfig": &kinds.KubeadmConfigList{},
	}
}

// IndexField implements client.FieldIndexer.
func (w *world) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	kind, err := w.kindOf(object)
	w.indexes[index{kind, field}] = values
	return err
}

func (w *world) kindOf(object runtime.Object) (string, error) {
	kind, err := apiutil.GVKForObject(object, w.live.Scheme())
	if err != nil {
		return "", fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	return strings.TrimSuffix(kind.Kind, "List"), nil
}

// objects returns the objects of a kind in the namespace, known only for those of lists.
func (w *world) objects(ctx context.Context, kind string) (objects []client.Object, known bool, err error) {
	list, known := lists()[kind]
	if objects, read := w.known[kind]; !known || read {
		return objects, known, nil
	}
	options := []client.ListOption{client.InNamespace(w.namespace)}
	if kind == "Secret" {
		options = append(options, client.HasLabels{contract.LabelGenerated})
	}
	if err := w.live.List(ctx, list, options...); err != nil {
		return nil, true, fmt.Errorf("listing objects of kind %s: %w", kind, err)
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", item)
		}
		if changed, err := w.change(kind, client.ObjectKeyFromObject(object)); err != nil || changed != nil {
			object = changed
		}
		objects = append(objects, object)
		return nil
	})
	w.known[kind] = objects
	return objects, true, err
}

// change returns the object that takes the place of the one of a name, or nil.
func (w *world) change(kind string, key client.ObjectKey) (client.Object, error) {
	for _, object := range w.changed {
		of, err := w.kindOf(object)
		if err != nil {
			return nil, err
		}
		if of == kind && client.ObjectKeyFromObject(object) == key {
			return object, nil
		}
	}
	return nil, nil //nolint:nilnil // none is an answer
}

// Get implements client.Reader.
func (w *world) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	kind, err := w.kindOf(into)
	if err != nil {
		return err
	}
	objects, known, err := w.objects(ctx, kind)
	if err != nil {
		return err
	}
	if !known || key.Namespace != w.namespace {
		return w.live.Get(ctx, key, into, options...) //nolint:wrapcheck // it is the reader
	}
	i := slices.IndexFunc(objects, func(o client.Object) bool { return o.GetName() == key.Name })
	if i < 0 {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
	return set(into, objects[i])
}

// set copies an object into another of the same type.
func set(into, object client.Object) error {
	from, to := reflect.ValueOf(object.DeepCopyObject()), reflect.ValueOf(into)
	if from.Type() != to.Type() {
		return fmt.Errorf("%T cannot be read as %T", object, into)
	}
	to.Elem().Set(from.Elem())
	return nil
}

// List implements client.Reader.
func (w *world) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind, err := w.kindOf(list)
	if err != nil {
		return err
	}
	objects, known, err := w.objects(ctx, kind)
	if err != nil {
		return err
	}
	if !known {
		return w.live.List(ctx, list, options...) //nolint:wrapcheck // it is the reader
	}
	asked := client.ListOptions{}
	asked.ApplyOptions(options)
	var found []runtime.Object
	for _, object := range objects {
		matches, err := w.matches(kind, object, asked)
		if err != nil {
			return err
		}
		if matches {
			found = append(found, object.DeepCopyObject())
		}
	}
	return meta.SetList(list, found) //nolint:wrapcheck // of the types above
}

func (w *world) matches(kind string, object client.Object, asked client.ListOptions) (bool, error) {
	if asked.LabelSelector != nil && !asked.LabelSelector.Matches(labels.Set(object.GetLabels())) ||
		asked.Namespace != "" && asked.Namespace != object.GetNamespace() {
		return false, nil
	}
	if asked.FieldSelector == nil {
		return true, nil
	}
	for _, requirement := range asked.FieldSelector.Requirements() {
		values := w.indexes[index{kind, requirement.Field}]
		if values == nil {
			return false, fmt.Errorf("there is no index %s of kind %s", requirement.Field, kind)
		}
		if !slices.Contains(values(object), requirement.Value) {
			return false, nil
		}
	}
	return true, nil
}

// liveReader reads from the API server, except for what the preview changes.
type liveReader struct {
	client.Reader

	world *world
}

// Get implements client.Reader.
func (l liveReader) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	options ...client.GetOption,
) error {
	kind, err := l.world.kindOf(into)
	if err != nil {
		return err
	}
	changed, err := l.world.change(kind, key)
	if err == nil && changed != nil && reflect.TypeOf(changed) == reflect.TypeOf(into) {
		return set(into, changed)
	}
	if err != nil {
		return err
	}
	return l.Reader.Get(ctx, key, into, options...) //nolint:wrapcheck // it is the reader
}

// proxySecrets reads proxy Secrets in the place of the controller's cache of them: one by one, those with the label.
type proxySecrets struct {
	cache.Cache // nil: a preview watches nothing

	live client.Reader
}

// Get implements client.Reader.
func (p proxySecrets) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	options ...client.GetOption,
) error {
	if err := p.live.Get(ctx, key, into, options...); err != nil {
		return err //nolint:wrapcheck // it is the reader
	}
	if _, labelled := into.GetLabels()[contract.LabelProxySecret]; !labelled {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	return nil
}
