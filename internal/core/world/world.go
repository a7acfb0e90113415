package world

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Reader is a client.Reader of objects in memory, with the controller's indexes. It is for one goroutine.
type Reader struct {
	scheme   *runtime.Scheme
	indexers map[schema.GroupKind]toolscache.Indexers
	kinds    map[schema.GroupKind]toolscache.Indexer
}

// byName is the index of a name in a namespace.
const byName = "name"

// keyOf returns the key of an object: MachineSets and Machines of manifests have the type of pools.
func keyOf(object any) (string, error) {
	key, err := toolscache.MetaNamespaceKeyFunc(object)
	if typed, ok := object.(runtime.Object); ok {
		key += "/" + typed.GetObjectKind().GroupVersionKind().Kind
	}
	return key, err //nolint:wrapcheck // it is the key
}

// Of returns a Reader of objects in memory.
func Of(ctx context.Context, objects ...client.Object) (*Reader, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	r := &Reader{scheme: scheme, indexers: map[schema.GroupKind]toolscache.Indexers{}}
	err = SetupIndexes(ctx, indexer{r})
	return r.Of(objects...), err
}

// Of returns a Reader of other objects in memory, with the indexes of r.
func (r *Reader) Of(objects ...client.Object) *Reader {
	other := &Reader{scheme: r.scheme, indexers: r.indexers, kinds: map[schema.GroupKind]toolscache.Indexer{}}
	for _, object := range objects {
		other.Add(object)
	}
	return other
}

// Add adds an object, unless there is one of its name. Nothing finds one of a kind that the scheme does not have.
func (r *Reader) Add(object client.Object) {
	kind, _ := r.kindOf(object)
	if _, exists, _ := r.store(kind).Get(object); !exists {
		_ = r.store(kind).Add(object) // its error is that of keyOf, for what is no object
	}
}

// store returns the objects of a kind.
func (r *Reader) store(kind schema.GroupKind) toolscache.Indexer {
	if r.kinds[kind] == nil {
		r.kinds[kind] = toolscache.NewIndexer(keyOf, toolscache.Indexers{
			byName: func(object any) ([]string, error) {
				name, err := toolscache.MetaNamespaceKeyFunc(object)
				return []string{name}, err //nolint:wrapcheck // it is the key
			},
		})
		_ = r.kinds[kind].AddIndexers(r.indexers[kind]) // none has the name of another
	}
	return r.kinds[kind]
}

// indexer sets the indexes of a Reader.
type indexer struct{ reader *Reader }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	kind, err := i.reader.kindOf(object)
	if i.reader.indexers[kind] == nil {
		i.reader.indexers[kind] = toolscache.Indexers{}
	}
	i.reader.indexers[kind][field] = func(object any) ([]string, error) {
		typed, ok := object.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T is no object", object)
		}
		return values(typed), nil
	}
	return err
}

// kindOf returns the kind of an object, or of the items of a list.
func (r *Reader) kindOf(object runtime.Object) (schema.GroupKind, error) {
	kind, err := apiutil.GVKForObject(object, r.scheme)
	if err != nil {
		return schema.GroupKind{}, fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	return schema.GroupKind{Group: kind.Group, Kind: strings.TrimSuffix(kind.Kind, "List")}, nil
}

// Get implements client.Reader.
func (r *Reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind, err := r.kindOf(into)
	if err != nil {
		return err
	}
	found, err := r.store(kind).ByIndex(byName, toolscache.NewObjectName(key.Namespace, key.Name).String())
	if err != nil || len(found) == 0 {
		return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
	}
	return copyInto(into, found[0])
}

// List implements client.Reader.
func (r *Reader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind, err := r.kindOf(list)
	if err != nil {
		return err
	}
	found, err := find(r.store(kind), (&client.ListOptions{}).ApplyOptions(options))
	if err != nil {
		return fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	if !items.IsValid() {
		return fmt.Errorf("%T is no list", list)
	}
	items.SetZero()
	for _, object := range found {
		item := reflect.New(items.Type().Elem())
		into, ok := reflect.TypeAssert[client.Object](item)
		if !ok {
			return fmt.Errorf("%T is no list of objects", list)
		}
		if err := copyInto(into, object); err != nil {
			return err
		}
		items.Set(reflect.Append(items, item.Elem()))
	}
	return nil
}

// find returns the objects that a list selects, in order. A list by several fields is an error.
func find(store toolscache.Indexer, asked *client.ListOptions) (found []client.Object, err error) {
	candidates := store.List()
	if asked.FieldSelector != nil {
		requirements := asked.FieldSelector.Requirements()
		if len(requirements) != 1 {
			return nil, fmt.Errorf("by %d fields", len(requirements))
		}
		if candidates, err = store.ByIndex(requirements[0].Field, requirements[0].Value); err != nil {
			return nil, err //nolint:wrapcheck // it names the index
		}
	}
	for _, candidate := range candidates {
		if object, ok := candidate.(client.Object); ok &&
			(asked.LabelSelector == nil || asked.LabelSelector.Matches(labels.Set(object.GetLabels()))) &&
			(asked.Namespace == "" || asked.Namespace == object.GetNamespace()) {
			found = append(found, object)
		}
	}
	slices.SortFunc(found, func(a, b client.Object) int {
		before, _ := keyOf(a)
		after, _ := keyOf(b)
		return strings.Compare(before, after)
	})
	return found, nil
}

// copyInto copies an object into another of its type, or of one with fewer fields, as a decoder would. Metadata do not
// become an object: its other fields would look as if they were empty.
func copyInto(into client.Object, object any) error {
	typed, ok := object.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", object)
	}
	from, to := reflect.ValueOf(typed.DeepCopyObject()), reflect.ValueOf(into)
	if from.Type() == to.Type() {
		to.Elem().Set(from.Elem())
		return nil
	}
	if _, partial := object.(*metav1.PartialObjectMetadata); partial {
		return fmt.Errorf("%T cannot be read as %T", object, into)
	}
	text, err := json.Marshal(object)
	if err == nil {
		to.Elem().SetZero()
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("reading %T as %T: %w", object, into, err)
	}
	return nil
}
