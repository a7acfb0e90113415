package world

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Reader is a client.Reader with the controller's indexes. It is for one goroutine.
type Reader struct {
	scheme  *runtime.Scheme
	indexes map[index]client.IndexerFunc
	// own are objects in memory. They take the place of those of the same kind and name in a namespace.
	own map[schema.GroupKind]*store
	// live is the API server, nil for memory alone.
	live      client.Reader
	namespace string
	// listed are the objects of a kind that live was asked for.
	listed map[schema.GroupKind]*store
}

type index struct{ kind, field string }

// store has objects of one kind.
type store struct {
	all   []client.Object
	names map[client.ObjectKey]client.Object
	// indexed are those that a list has asked an index for, by index and value, in the order of all.
	indexed map[index]map[string][]client.Object
}

func (s *store) add(object client.Object) {
	s.all = append(s.all, object)
	if s.names == nil {
		s.names = map[client.ObjectKey]client.Object{}
	}
	if key := client.ObjectKeyFromObject(object); s.names[key] == nil {
		s.names[key] = object
	}
	s.indexed = nil
}

// get returns the object of a name, or nil.
func (s *store) get(key client.ObjectKey) client.Object {
	if s == nil {
		return nil
	}
	return s.names[key]
}

// Of returns a Reader of objects in memory.
func Of(ctx context.Context, objects ...client.Object) (*Reader, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	r := &Reader{scheme: scheme, indexes: map[index]client.IndexerFunc{}}
	return r.Of(objects...), SetupIndexes(ctx, indexer{r})
}

// Of returns a Reader of other objects in memory, with the indexes of r.
func (r *Reader) Of(objects ...client.Object) *Reader {
	other := &Reader{scheme: r.scheme, indexes: r.indexes, own: map[schema.GroupKind]*store{}}
	for _, object := range objects {
		other.Add(object)
	}
	return other
}

// Add adds an object to those in memory. Nothing finds one of a kind that the scheme does not have.
func (r *Reader) Add(object client.Object) {
	kind, _ := r.kindOf(object)
	if r.own[kind] == nil {
		r.own[kind] = &store{}
	}
	r.own[kind].add(object)
}

// Snapshot returns a Reader of one namespace, of which it lists each kind that the controller caches once. All else it
// reads live. changed take the place of objects in the namespace.
func Snapshot(ctx context.Context, live client.Reader, namespace string, changed ...client.Object) (*Reader, error) {
	r, err := Of(ctx, changed...)
	if err == nil {
		r.live, r.namespace, r.listed = live, namespace, map[schema.GroupKind]*store{}
	}
	return r, err
}

// Live returns a reader that asks the API server for everything but the objects that r has in memory.
func (r *Reader) Live() client.Reader { return changedReader{Reader: r.live, world: r} }

// indexer sets the indexes of a Reader.
type indexer struct{ reader *Reader }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	kind, err := i.reader.kindOf(object)
	i.reader.indexes[index{kind.Kind, field}] = values
	return err
}

// lists are those by which kinds are read that the controller caches. Of Secrets it caches those with a label.
func lists() map[string]client.ObjectList {
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	return map[string]client.ObjectList{
		"Cluster": &clusterv1.ClusterList{}, "MachineDeployment": &clusterv1.MachineDeploymentList{},
		"MachinePool": &clusterv1.MachinePoolList{}, "Machine": machines, "Secret": &corev1.SecretList{},
		"KubeadmControlPlane":   &controlplanev1.KubeadmControlPlaneList{},
		"KubeadmConfigTemplate": &bootstrapv1.KubeadmConfigTemplateList{}, "KubeadmConfig": &bootstrapv1.KubeadmConfigList{},
	}
}

// kindOf returns the kind of an object, or that of the items of a list.
func (r *Reader) kindOf(object runtime.Object) (schema.GroupKind, error) {
	kind, err := apiutil.GVKForObject(object, r.scheme)
	if err != nil {
		return schema.GroupKind{}, fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	return schema.GroupKind{Group: kind.Group, Kind: strings.TrimSuffix(kind.Kind, "List")}, nil
}

// objects returns the objects of a kind. They are not known for a kind that only the API server has.
func (r *Reader) objects(ctx context.Context, kind schema.GroupKind) (all *store, known bool, err error) {
	if r.live == nil {
		return r.own[kind], true, nil
	}
	list, known := lists()[kind.Kind]
	if all, listed := r.listed[kind]; !known || listed {
		return all, known, nil
	}
	options := []client.ListOption{client.InNamespace(r.namespace)}
	if kind.Kind == "Secret" {
		options = append(options, client.HasLabels{contract.LabelProxySecret})
	}
	if err := r.live.List(ctx, list, options...); err != nil {
		return nil, true, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	all = &store{}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", item)
		}
		if changed := r.own[kind].get(client.ObjectKeyFromObject(object)); changed != nil {
			object = changed
		}
		all.add(object)
		return nil
	})
	r.listed[kind] = all
	return all, true, err
}

// Get implements client.Reader.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	kind, err := r.kindOf(into)
	if err != nil {
		return err
	}
	all, known, err := r.objects(ctx, kind)
	if err != nil {
		return err
	}
	if r.live != nil && (!known || key.Namespace != r.namespace) {
		return r.live.Get(ctx, key, into, options...) //nolint:wrapcheck // it is the reader
	}
	object := all.get(key)
	if object == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
	}
	return copyInto(into, object)
}

// List implements client.Reader.
func (r *Reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind, err := r.kindOf(list)
	if err != nil {
		return err
	}
	all, known, err := r.objects(ctx, kind)
	if err != nil {
		return err
	}
	if !known {
		return r.live.List(ctx, list, options...) //nolint:wrapcheck // it is the reader
	}
	asked := client.ListOptions{}
	asked.ApplyOptions(options)
	found, err := r.find(kind.Kind, all, asked)
	if err != nil {
		return err
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

// find returns the objects of a kind that a list selects. A list by several fields is an error.
func (r *Reader) find(kind string, all *store, asked client.ListOptions) (found []client.Object, err error) {
	var candidates []client.Object
	if all != nil {
		candidates = all.all
	}
	if asked.FieldSelector != nil {
		requirements := asked.FieldSelector.Requirements()
		if len(requirements) != 1 {
			return nil, fmt.Errorf("a list of kind %s by %d fields", kind, len(requirements))
		}
		by := index{kind, requirements[0].Field}
		values := r.indexes[by]
		if values == nil {
			return nil, fmt.Errorf("there is no index %s of kind %s", by.field, kind)
		}
		candidates = all.by(by, values)[requirements[0].Value]
	}
	for _, object := range candidates {
		if (asked.LabelSelector == nil || asked.LabelSelector.Matches(labels.Set(object.GetLabels()))) &&
			(asked.Namespace == "" || asked.Namespace == object.GetNamespace()) {
			found = append(found, object)
		}
	}
	return found, nil
}

// by returns the objects by the values of an index.
func (s *store) by(i index, values client.IndexerFunc) map[string][]client.Object {
	if s == nil {
		return nil
	}
	indexed, known := s.indexed[i]
	if !known {
		indexed = map[string][]client.Object{}
		for _, object := range s.all {
			for _, value := range values(object) {
				indexed[value] = append(indexed[value], object)
			}
		}
		if s.indexed == nil {
			s.indexed = map[index]map[string][]client.Object{}
		}
		s.indexed[i] = indexed
	}
	return indexed
}

// copyInto copies an object into another of its type, or of one with fewer fields, as a decoder would. Metadata do not
// become an object: its other fields would look as if they were empty.
func copyInto(into, object client.Object) error {
	from, to := reflect.ValueOf(object.DeepCopyObject()), reflect.ValueOf(into)
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

// changedReader reads from the API server, but for the objects that a world has in memory.
type changedReader struct {
	client.Reader

	world *Reader
}

// Get implements client.Reader.
func (c changedReader) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	options ...client.GetOption,
) error {
	kind, err := c.world.kindOf(into)
	if err != nil {
		return err
	}
	if changed := c.world.own[kind].get(key); changed != nil && reflect.TypeOf(changed) == reflect.TypeOf(into) {
		return copyInto(into, changed)
	}
	return c.Reader.Get(ctx, key, into, options...) //nolint:wrapcheck // it is the reader
}
