package remote

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// pageSize and maxPages bound a list.
const pageSize, maxPages = 250, 100

// Pages reads a list page by page into list, and calls each after every page.
func Pages(ctx context.Context, remote client.Reader, list client.ObjectList, each func(), options ...client.ListOption,
) error {
	page := client.ListOptions{Limit: pageSize}
	for range maxPages {
		if err := remote.List(ctx, list, append(slices.Clone(options), &page)...); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
		each()
		if page.Continue = list.GetContinue(); page.Continue == "" {
			return nil
		}
		list.SetContinue("") // a decoder keeps what the next page lacks
	}
	return fmt.Errorf("listing %T: more than %d pages", list, maxPages)
}

// Metadata lists the metadata of objects of a kind. A kind that the API server does not know has none.
func Metadata(ctx context.Context, remote client.Reader, kind schema.GroupVersionKind, options ...client.ListOption) (
	all []metav1.PartialObjectMetadata, err error,
) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = Pages(ctx, remote, list, func() {
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
		}
		all = append(all, list.Items...)
		list.Items = nil
	}, options...)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return all, err
}

// IsOurs reports whether our field manager has written an object. A label can be copied to the object of another.
func IsOurs(object metav1.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == contract.Name && entry.Subresource == ""
	})
}

// Delete deletes the object of which metadata was read, if that has not begun, and leaves another of its name alone.
func Delete(ctx context.Context, remote client.Writer, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	uid := object.GetUID()
	err := remote.Delete(ctx, object, client.Preconditions{UID: &uid},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
	}
	return nil
}
