package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/contest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/passes"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/expiring"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// Writer writes bootstrap objects. Its methods can be called concurrently.
type Writer struct {
	// Client writes to the API server; its cache knows the kinds.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time
	// Contests remembers which writes were reverted.
	Contests *contest.Contests

	// written are the last versions of objects that this process has written, by UID.
	written expiring.Map[types.UID, string]
}

// Change is what a write has done to the entries of an object.
type Change int

// The changes.
const (
	// Unchanged: no entry was changed.
	Unchanged Change = iota
	// Added: entries were added or replaced.
	Added
	// Removed: entries were removed.
	Removed
)

// Write applies the edits of a decision to o, unless another manager keeps reverting them, and its annotations. It
// returns the entries that o has then.
func (w *Writer) Write(ctx context.Context, o Object, decision plan.Decision) (
	patch.Spec, Change, report.Outcome, error,
) {
	edits, annotations := decision.Edits, decision.Annotations
	key, sum := contest.Key{UID: o.GetUID()}, contest.DigestOf(edits)
	out, waits := w.Contests.Check(o.Kind, o.Object, key, sum, w.Now())
	if waits {
		edits, annotations = nil, map[string]string{}
		if plan.IsPausedByUs(o.GetAnnotations()) {
			annotations[clusterv1.PausedAnnotation] = ""
		}
	}
	if len(edits) == 0 {
		if len(plan.AnnotationOperations(o.GetAnnotations(), annotations)) == 0 {
			return o.Spec, Unchanged, out, nil
		}
		return o.Spec, Unchanged, out, w.Annotate(ctx, o.Object, annotations)
	}
	data, err := json.Marshal(operations(o, edits, annotations))
	if err != nil {
		return o.Spec, Unchanged, out, fmt.Errorf("encoding patch of %s: %w", o, err)
	}
	change, rival := Added, w.rival(ctx, o, edits)
	if decision.Version == 0 {
		change = Removed
	}
	ctrl.LoggerFrom(ctx).Info("Patching bootstrap object", o.Kind, klog.KObj(o.Object), "edits", len(edits), "removing",
		change == Removed)
	if err := w.patchJSON(ctx, o.Object, data); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return o.Spec, Unchanged, out, nil // deleted meanwhile; its deletion enqueues the Cluster
		}
		return o.Spec, Unchanged, out, fmt.Errorf("patching %s: %w", o, err)
	}
	w.Contests.Wrote(key, sum, w.Now(), rival)
	spec := patch.SpecOf(SpecOf(o.Object))
	if decision.Recipe != nil && !w.Contests.IsContested(key, sum, w.Now()) {
		// If others have removed it again in the same request, or keep reverting it, the event causes another pass.
		if left, err := patch.Ensure(spec, *decision.Recipe); err == nil && len(left.Edits) == 0 {
			passes.Wrote(ctx, o.Object)
		}
	}
	return spec, change, out, nil
}

// writtenMemory is for how long a written version is remembered. A cache that is further behind stops Cluster API, too.
const writtenMemory = time.Hour

// IsBehind reports whether object comes from a cache that does not show this process's last write to it yet. With such
// a cache a removal finds nothing to remove, and forgets the Cluster.
func (w *Writer) IsBehind(object client.Object) bool {
	written, found := w.written.Get(object.GetUID(), w.Now())
	if !found {
		return false
	}
	return isBefore(object, written)
}

func isBefore(object client.Object, version string) bool {
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), version)
	return err == nil && order < 0
}

// patchJSON sends a JSON patch that was computed for a version of object. The API server applies a patch before it
// checks the version: a patch for an old version, from a cache that is behind, may be impossible on the current one.
// That is a conflict like any other.
func (w *Writer) patchJSON(ctx context.Context, object client.Object, data []byte) error {
	version := object.GetResourceVersion()
	err := w.Client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, data), client.FieldOwner(contract.Name))
	if err == nil {
		now := w.Now()
		w.written.Put(object.GetUID(), object.GetResourceVersion(), now, now.Add(writtenMemory))
		return nil
	}
	if !apierrors.IsInvalid(err) {
		return err
	}
	kind, kindErr := w.Client.GroupVersionKindFor(object)
	if kindErr != nil {
		return err
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(kind)
	if getErr := w.Live.Get(ctx, client.ObjectKeyFromObject(object), live); getErr != nil ||
		live.ResourceVersion == version {
		return err
	}
	return Stale(kind.Kind, object)
}

// operations is the JSON patch of edits on o. It fails on the API server if o has changed since it was read, and
// if a part of the spec exists that the program's types do not show.
func operations(o Object, edits []patch.Edit, annotations map[string]string) []patch.Operation {
	ops := []patch.Operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: o.GetResourceVersion()}}
	at := o.location()
	if at.Missing > 0 {
		outermost := at.Parents[len(at.Parents)-at.Missing]
		ops = append(ops, patch.Operation{Op: "test", Path: outermost, Value: json.RawMessage("null")})
	}
	ops = append(ops, patch.Operations(at, o.Spec, edits)...)
	return append(ops, plan.AnnotationOperations(o.GetAnnotations(), annotations)...)
}

// Annotate sets annotations of an object and removes those with an empty value.
func (w *Writer) Annotate(ctx context.Context, object client.Object, want map[string]string) error {
	operations := append([]patch.Operation{{
		Op: "replace", Path: "/metadata/resourceVersion",
		Value: object.GetResourceVersion(),
	}},
		plan.AnnotationOperations(object.GetAnnotations(), want)...)
	data, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding annotations of %s: %w", klog.KObj(object), err)
	}
	ctrl.LoggerFrom(ctx).Info("Annotating object", "object", klog.KObj(object))
	if err := w.patchJSON(ctx, object, data); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating %s: %w", klog.KObj(object), err)
	}
	return nil
}

// rival returns which other manager has written the lists of o last, if that matters and the API server has recorded
// it: a manager that owns no entry of a list, because it has emptied it, is not recorded.
func (w *Writer) rival(ctx context.Context, o Object, edits []patch.Edit) string {
	if !w.Contests.IsNext(contest.Key{UID: o.GetUID()}, contest.DigestOf(edits), w.Now()) {
		return ""
	}
	live := &metav1.PartialObjectMetadata{}
	kind, err := w.Client.GroupVersionKindFor(o.Object)
	if err != nil {
		return ""
	}
	live.SetGroupVersionKind(kind)
	if err := w.Live.Get(ctx, client.ObjectKeyFromObject(o.Object), live); err != nil {
		return ""
	}
	name, latest := "", time.Time{}
	for _, entry := range live.ManagedFields {
		if entry.Manager == contract.Name || entry.FieldsV1 == nil || entry.Time == nil ||
			entry.Time.Before(&metav1.Time{Time: latest}) {
			continue
		}
		for _, list := range []patch.List{patch.ListFiles, patch.ListPre, patch.ListPost} {
			if strings.Contains(string(entry.FieldsV1.GetRawBytes()), fmt.Sprintf("%q", "f:"+string(list))) {
				name, latest = entry.Manager, entry.Time.Time
			}
		}
	}
	return name
}

// Stale is the conflict error for an object of a kind in a cache that is behind.
func Stale(kind string, object client.Object) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: kind}, object.GetName(), errors.New("the cache is behind"))
}
