package slim

import (
	"unique"

	kjson "sigs.k8s.io/json"
)

// shared is a value that is kept once for all objects that have it, for as long as one has: of a string that was taken
// out of its handle, the next object has a copy again. What few objects have is not worth it, as a handle takes a
// quarter of a KiB. The zero one is the zero value.
type shared[T comparable] struct{ handle unique.Handle[T] }

func sharedOf[T comparable](value T) (s shared[T]) {
	if value != *new(T) {
		s.handle = unique.Make(value)
	}
	return s
}

func (s shared[T]) value() (value T) {
	if s != (shared[T]{}) {
		value = s.handle.Value()
	}
	return value
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *shared[T]) UnmarshalJSON(text []byte) error {
	return decode(text, func(value T) { *s = sharedOf(value) })
}

// list is a list that is kept once for all objects that have an equal one. The zero one is nil.
type list[T comparable] struct{ first unique.Handle[part[T]] }

// part is a part of a list: two lists with other ends share none, but most of what a list takes are its elements.
type part[T comparable] struct {
	items [8]unique.Handle[T]
	count int // from here on
	rest  unique.Handle[part[T]]
}

// listOf returns the list of what of returns for each element. An empty list stays empty, as a patch would have to
// replace it.
func listOf[V any, T comparable](all []V, of func(V) T) (l list[T]) {
	if all != nil {
		l.first = partOf(each(all, func(value V) unique.Handle[T] { return unique.Make(of(value)) }))
	}
	return l
}

func partOf[T comparable](items []unique.Handle[T]) unique.Handle[part[T]] {
	p := part[T]{count: len(items)}
	if n := copy(p.items[:], items); n < len(items) {
		p.rest = partOf(items[n:])
	}
	return unique.Make(p)
}

// wholeOf returns what of returns for each element of a list.
func wholeOf[V any, T comparable](l list[T], of func(T) V) []V {
	if l == (list[T]{}) {
		return nil
	}
	p := l.first.Value()
	all := make([]V, 0, p.count)
	for ; p.count > len(p.items); p = p.rest.Value() {
		for _, item := range p.items {
			all = append(all, of(item.Value()))
		}
	}
	for _, item := range p.items[:p.count] {
		all = append(all, of(item.Value()))
	}
	return all
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(text []byte) error {
	return decode(text, func(all []T) { *l = listOf(all, same) })
}

func same[T any](value T) T { return value }

// decode decodes as an informer does.
func decode[V any](text []byte, into func(V)) error {
	var value V
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &value)
	into(value)
	return err
}

// each returns what of returns for each element. An empty list stays empty, as a patch would have to replace it.
func each[V, K any](list []V, of func(V) K) []K {
	if list == nil {
		return nil
	}
	all := make([]K, len(list))
	for i := range list {
		all[i] = of(list[i])
	}
	return all
}

// optional is a pointer's value, or that there is none, which can be compared.
type optional[T comparable] struct {
	value T
	set   bool
}

func optionally[T comparable](value *T) (o optional[T]) {
	if value != nil {
		o = optional[T]{*value, true}
	}
	return o
}

func (o optional[T]) whole() *T {
	if !o.set {
		return nil
	}
	return new(o.value)
}
