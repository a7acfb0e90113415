package slim

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kept is an object as a cache keeps it. It is decoded like the whole one, and takes a third of its memory after Keep.
// Its method Into fills in the whole object without what Keep has dropped, and shares nothing that can be changed. What
// Keep takes is not changed any more: copies share it.
type Kept interface {
	runtime.Object
	metav1.Object
	// Keep drops what no decision reads. It changes nothing the second time.
	Keep()
}

// List is a list of kept objects, as the API server sends it.
type List[T any, P interface {
	*T
	runtime.Object
}] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *List[T, P]) DeepCopyObject() runtime.Object {
	c := &List[T, P]{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy(), Items: make([]T, len(l.Items))}
	for i := range l.Items {
		c.Items[i] = *P(&l.Items[i]).DeepCopyObject().(P) //nolint:forcetypeassert // of its own type
	}
	return c
}
