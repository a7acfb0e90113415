package world

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LabelledNamespaces selects the namespaces of a management cluster by their labels. Changing the choice requires
// permission to change Namespaces, which users of one namespace do not have.
type LabelledNamespaces struct {
	// Cached reads the metadata of Namespaces.
	Cached client.Reader
	// Selector is the label selector.
	Selector labels.Selector
}

// NamespaceMetadata returns the form in which Namespaces are watched and read.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

// Selects implements settings.NamespaceSelector.
func (l LabelledNamespaces) Selects(ctx context.Context, name string) (bool, error) {
	namespace := NamespaceMetadata()
	err := l.Cached.Get(ctx, client.ObjectKey{Name: name}, namespace)
	return err == nil && l.Selector.Matches(labels.Set(namespace.Labels)), client.IgnoreNotFound(err)
}

// String implements settings.NamespaceSelector.
func (l LabelledNamespaces) String() string { return l.Selector.String() }
