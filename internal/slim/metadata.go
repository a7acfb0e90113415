package slim

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// metadata is what somebody reads of an object's metadata, in the form in which it is decoded and kept:
// metav1.ObjectMeta takes 232 bytes, an owner reference 100 and a map of two labels 340. It implements metav1.Object.
// What is set and not kept is lost.
type metadata struct {
	Name              string         `json:"name"`
	Namespace         shared[string] `json:"namespace"`
	UID               types.UID      `json:"uid"`
	ResourceVersion   string         `json:"resourceVersion"`
	Generation        int64          `json:"generation"`
	CreationTimestamp moment         `json:"creationTimestamp"`
	DeletionTimestamp moment         `json:"deletionTimestamp"`
	Labels            pairs          `json:"labels"`
	Annotations       pairs          `json:"annotations"`
	OwnerReferences   owners         `json:"ownerReferences"`
	Finalizers        list[string]   `json:"finalizers"`
}

// whole returns the metadata of the whole object.
func (m *metadata) whole() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.GetNamespace(), UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, CreationTimestamp: m.CreationTimestamp.whole(),
		DeletionTimestamp: m.GetDeletionTimestamp(), Labels: m.GetLabels(), Annotations: m.GetAnnotations(),
		OwnerReferences: m.GetOwnerReferences(), Finalizers: m.GetFinalizers(),
	}
}

// keep takes values of labels that are names, too, from there.
func (m *metadata) keep() {
	m.Labels = each(m.Labels, func(label pair) pair { return pair{label.key, m.own(label.value)} })
}

// own returns the string of the metadata that equals s if there is one: most names are that of the object or of its
// Cluster.
func (m *metadata) own(s string) string {
	if s == m.Name {
		return m.Name
	}
	for _, o := range m.OwnerReferences {
		if name := o.of.value().name; s == name {
			return name
		}
	}
	for _, label := range m.Labels {
		if s == label.value {
			return label.value
		}
	}
	return s
}

// GetObjectKind implements runtime.Object. The kind is that of the Go type.
func (*metadata) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (m *metadata) GetName() string                    { return m.Name }
func (m *metadata) SetName(name string)                { m.Name = name }
func (m *metadata) GetNamespace() string               { return m.Namespace.value() }
func (m *metadata) SetNamespace(namespace string)      { m.Namespace = sharedOf(namespace) }
func (m *metadata) GetUID() types.UID                  { return m.UID }
func (m *metadata) SetUID(uid types.UID)               { m.UID = uid }
func (m *metadata) GetResourceVersion() string         { return m.ResourceVersion }
func (m *metadata) SetResourceVersion(version string)  { m.ResourceVersion = version }
func (m *metadata) GetGeneration() int64               { return m.Generation }
func (m *metadata) SetGeneration(generation int64)     { m.Generation = generation }
func (m *metadata) GetCreationTimestamp() metav1.Time  { return m.CreationTimestamp.whole() }
func (m *metadata) SetCreationTimestamp(t metav1.Time) { m.CreationTimestamp = momentOf(t) }
func (m *metadata) GetLabels() map[string]string       { return m.Labels.whole() }
func (m *metadata) SetLabels(labels map[string]string) { m.Labels = pairsOf(labels) }
func (m *metadata) GetAnnotations() map[string]string  { return m.Annotations.whole() }
func (m *metadata) SetAnnotations(annotations map[string]string) {
	m.Annotations = pairsOf(annotations)
}

func (m *metadata) GetOwnerReferences() []metav1.OwnerReference { return m.OwnerReferences.whole() }

func (m *metadata) SetOwnerReferences(all []metav1.OwnerReference) { m.OwnerReferences = ownersOf(all) }

func (m *metadata) GetFinalizers() []string { return wholeOf(m.Finalizers, same) }

func (m *metadata) SetFinalizers(finalizers []string)           { m.Finalizers = listOf(finalizers, same) }
func (*metadata) GetGenerateName() string                       { return "" }
func (*metadata) SetGenerateName(string)                        {}
func (*metadata) GetSelfLink() string                           { return "" }
func (*metadata) SetSelfLink(string)                            {}
func (*metadata) GetDeletionGracePeriodSeconds() *int64         { return nil }
func (*metadata) SetDeletionGracePeriodSeconds(*int64)          {}
func (*metadata) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }
func (*metadata) SetManagedFields([]metav1.ManagedFieldsEntry)  {}

func (m *metadata) GetDeletionTimestamp() *metav1.Time {
	if m.DeletionTimestamp == 0 {
		return nil
	}
	return new(m.DeletionTimestamp.whole())
}

func (m *metadata) SetDeletionTimestamp(t *metav1.Time) {
	m.DeletionTimestamp = 0
	if t != nil {
		m.DeletionTimestamp = momentOf(*t)
	}
}

// moment is a time of an API server, which has no fractions: in seconds since the year 1. Zero is none.
type moment int64

func momentOf(t metav1.Time) moment { return moment(t.Unix() - time.Time{}.Unix()) }

func (m moment) whole() metav1.Time {
	if m == 0 {
		return metav1.Time{}
	}
	return metav1.Unix(int64(m)+time.Time{}.Unix(), 0)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *moment) UnmarshalJSON(text []byte) error {
	var t metav1.Time
	err := t.UnmarshalJSON(text)
	*m = momentOf(t)
	return err
}

// pairs is a map that is never changed, ordered by key.
type pairs []pair

type pair struct {
	key   shared[string]
	value string
}

func pairsOf(values map[string]string) pairs {
	if values == nil {
		return nil
	}
	p := make(pairs, 0, len(values))
	for key, value := range values {
		p = append(p, pair{sharedOf(key), value})
	}
	slices.SortFunc(p, func(a, b pair) int { return cmp.Compare(a.key.value(), b.key.value()) })
	return p
}

// whole returns a map of the caller's.
func (p pairs) whole() map[string]string {
	if p == nil {
		return nil
	}
	values := make(map[string]string, len(p))
	for _, one := range p {
		values[one.key.value()] = one.value
	}
	return values
}

// UnmarshalJSON implements json.Unmarshaler. The configuration that kubectl has applied last is not kept.
func (p *pairs) UnmarshalJSON(text []byte) error {
	return decode(text, func(values map[string]string) {
		delete(values, corev1.LastAppliedConfigAnnotation)
		*p = pairsOf(values)
	})
}

type owners []owner

// owner is an owner reference. The objects of a Cluster have the same, with other flags.
type owner struct {
	of                 shared[owning]
	controller, blocks optional[bool]
}

type owning struct {
	apiVersion, kind shared[string]
	name             string
	uid              types.UID
}

func ownersOf(all []metav1.OwnerReference) owners {
	return each(all, func(o metav1.OwnerReference) owner {
		return owner{
			sharedOf(owning{sharedOf(o.APIVersion), sharedOf(o.Kind), o.Name, o.UID}),
			optionally(o.Controller), optionally(o.BlockOwnerDeletion),
		}
	})
}

func (all owners) whole() []metav1.OwnerReference {
	return each(all, func(o owner) metav1.OwnerReference {
		of := o.of.value()
		return metav1.OwnerReference{
			APIVersion: of.apiVersion.value(), Kind: of.kind.value(), Name: of.name, UID: of.uid,
			Controller: o.controller.whole(), BlockOwnerDeletion: o.blocks.whole(),
		}
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (all *owners) UnmarshalJSON(text []byte) error {
	return decode(text, func(values []metav1.OwnerReference) { *all = ownersOf(values) })
}
