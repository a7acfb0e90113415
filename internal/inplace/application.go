package workload

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// application is one pass over a workload cluster.
type application struct {
	client.Client

	cluster *clusterv1.Cluster
	wanted  []publish.Secret
	out     *controller.Outcome
	// objects are those to be applied.
	objects []wantedObject
	// existing is the metadata of our objects in the workload cluster, by kind.
	existing map[schema.GroupVersionKind][]metav1.PartialObjectMetadata
	// changed reports that an object was written, incomplete that the next pass has something to do, and left that
	// an object of the product is there.
	changed, incomplete, left bool
}

type wantedObject struct {
	*unstructured.Unstructured

	output publish.Output
}

// marks are the labels by which, and only by which, objects are changed and deleted.
func (p *application) marks() map[string]string {
	return map[string]string{labelManagedBy: contract.Name, contract.LabelGenerated: p.cluster.Name}
}

// read reads the objects that are wanted, each once.
func (p *application) read() error {
	for _, secret := range p.wanted {
		all, err := secret.Objects()
		if err != nil {
			return fmt.Errorf("reading output %s: %w", secret.Delivered, err)
		}
		for _, content := range all {
			object := &unstructured.Unstructured{Object: content}
			labels := object.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			maps.Copy(labels, p.marks())
			labels[contract.LabelOutput] = string(secret.Delivered.Name)
			object.SetLabels(labels)
			if !p.wants(object) {
				p.objects = append(p.objects, wantedObject{object, *secret.Delivered})
			}
		}
	}
	return nil
}

// digest identifies what is wanted. It stays in memory.
func (p *application) digest() string {
	kept := make([]string, 0, len(p.wanted))
	for _, secret := range p.wanted {
		kept = append(kept, fmt.Sprint(secret.Delivered, secret.Kept))
	}
	text, _ := json.Marshal([]any{kept, p.objects}) //nolint:errchkjson // it was decoded from YAML
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// wants reports whether an object is one of those to be applied.
func (p *application) wants(object client.Object) bool {
	return slices.ContainsFunc(p.objects, func(w wantedObject) bool {
		return w.GetObjectKind().GroupVersionKind() == object.GetObjectKind().GroupVersionKind() &&
			client.ObjectKeyFromObject(w) == client.ObjectKeyFromObject(object)
	})
}

// keeps reports whether an object stays as it is, because its output has no content now.
func (p *application) keeps(object client.Object) bool {
	labels := object.GetLabels()
	return slices.ContainsFunc(p.wanted, func(w publish.Secret) bool {
		isOf := labels[contract.LabelOutput] == string(w.Delivered.Name)
		if w.Delivered.Name != publish.Nodes || !isOf {
			return w.Kept && isOf
		}
		version := labels[contract.LabelNodeFiles] // the Namespace has none
		return version == "" || w.Kept && (w.Delivered.Argument == "" ||
			publish.NodeLabelOf(version) == publish.NodeLabel(w.Delivered.Argument))
	})
}

// list lists our objects.
func (p *application) list(ctx context.Context) (err error) {
	p.existing = map[schema.GroupVersionKind][]metav1.PartialObjectMetadata{}
	for _, kind := range deletable() {
		p.existing[kind], err = metadata(ctx, p, kind, client.MatchingLabels(p.marks()))
		if err != nil {
			return err
		}
	}
	return nil
}

// metadata lists the metadata of objects of a kind. A kind that the API server does not know has none.
func metadata(ctx context.Context, remote client.Reader, kind schema.GroupVersionKind, options ...client.ListOption) (
	all []metav1.PartialObjectMetadata, err error,
) {
	page := client.ListOptions{Limit: pageSize}
	for range maxPages {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := remote.List(ctx, list, append(slices.Clone(options), &page)...)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing %ss: %w", kind.Kind, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
			list.Items[i].SetManagedFields(nil)
		}
		all = append(all, list.Items...)
		if page.Continue = list.Continue; page.Continue == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("listing %ss: more than %d pages", kind.Kind, maxPages)
}

// apply applies an object, unless another has its name.
func (p *application) apply(ctx context.Context, object wantedObject) error {
	kind, key := object.GroupVersionKind(), client.ObjectKeyFromObject(object)
	name := object.GetKind() + " " + key.String()
	if key.Namespace == "" {
		name = object.GetKind() + " " + key.Name
	}
	i := slices.IndexFunc(p.existing[kind], func(o metav1.PartialObjectMetadata) bool {
		return client.ObjectKeyFromObject(&o) == key
	})
	applied := object.DeepCopy()
	if i >= 0 {
		if !p.existing[kind][i].DeletionTimestamp.IsZero() {
			p.postpone()
			return nil
		}
		// Nobody else's object is changed: the version is one that has our labels.
		applied.SetUID(p.existing[kind][i].UID)
		applied.SetResourceVersion(p.existing[kind][i].ResourceVersion)
	}
	before := applied.GetResourceVersion()
	err := p.write(ctx, applied)
	switch {
	case err == nil:
		p.changed = p.changed || applied.GetResourceVersion() != before
		p.left = true
		return nil
	case apierrors.IsAlreadyExists(err):
		p.out.Add(contract.ReasonNameTaken, "output %s: %s of the workload cluster exists and was not written by %s for "+
			"this Cluster; delete or rename it", object.output, name, contract.Name)
	case apierrors.IsConflict(err):
	case apierrors.IsInvalid(err) && i >= 0: // somebody has made it immutable
		p.incomplete = true
		p.out.RequeueIn(cleanDelay)
		return p.remove(ctx, &p.existing[kind][i])
	case apierrors.IsNotFound(err) && key.Namespace != "" && p.isMissing(ctx, key.Namespace):
		p.out.Add(contract.ReasonDeliveryFailed, "output %s: the workload cluster has no Namespace %s; create it",
			object.output, key.Namespace)
	case apierrors.IsNotFound(err):
		p.out.Add(contract.ReasonDeliveryFailed, "output %s: the workload cluster does not know kind %s of %s; install it",
			object.output, kind.Kind, kind.GroupVersion())
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("applying %s: %w", name, err)
	default: // its text is another's, and may quote what was applied
		p.out.Add(contract.ReasonDeliveryFailed, "output %s: the workload cluster refuses %s (status %d)", object.output,
			name, statusOf(err))
	}
	p.postpone()
	return nil
}

// write applies an object that has a version, and creates one that has none. Creating fails if the name is taken, where
// an apply would change the object of another. Server-side apply then gets the fields that create wrote: it removes no
// field that it does not manage.
func (p *application) write(ctx context.Context, object *unstructured.Unstructured) error {
	owner, created := client.FieldOwner(contract.Name), object.GetResourceVersion() == ""
	var err error
	if created {
		err = p.Create(ctx, object, owner)
	} else {
		//nolint:staticcheck // Apply of client.Client returns no version
		err = p.Patch(ctx, object, client.Apply, owner, client.ForceOwnership)
	}
	if err != nil {
		return err
	}
	data, err := csaupgrade.UpgradeManagedFieldsPatch(object, sets.New(contract.Name), contract.Name)
	if err != nil || data == nil {
		return err
	}
	if !created { // an earlier process created it and ended; only the next apply removes fields of it
		p.later(cleanDelay)
	}
	return p.Patch(ctx, object, client.RawPatch(types.JSONPatchType, data))
}

// statusOf returns the HTTP status of an error of an API server.
func statusOf(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

func (p *application) postpone() {
	p.incomplete, p.left = true, true
	p.out.RequeueIn(retryDelay)
}

func (p *application) later(delay time.Duration) {
	p.incomplete, p.left = true, true
	p.out.RequeueIn(delay)
}
