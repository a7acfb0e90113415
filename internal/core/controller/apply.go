package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// apply applies the decisions of a pass: generated Secrets first, which bootstrap data of the objects is made from.
func (c *Controller) apply(ctx context.Context, p *Pass, done *Result) error {
	if p.topology != nil && p.View.Enabled {
		found, err := p.topology.ensureSecrets(ctx)
		if done.Join(found); err != nil {
			return err
		}
	}
	for _, objects := range [][]Reconciled{done.Reconciled, done.others} {
		for i := range objects {
			if !objects[i].applies {
				continue
			}
			found, err := c.applyOne(ctx, p, &objects[i])
			if done.Join(found); err != nil {
				return err
			}
		}
	}
	p.Reconciled = done.Reconciled
	return nil
}

// applyOne writes the generated Secret that a decision refers to, and the entries and annotations of its object.
func (c *Controller) applyOne(ctx context.Context, p *Pass, o *Reconciled) (out Outcome, err error) {
	decision := o.Decision
	if decision.Secret != "" {
		resolution := ptr.Deref(decision.Resolution, settings.Resolution{})
		if out, err = p.Secrets.Ensure(ctx, decision.Secret, resolution); err != nil {
			return out, err
		}
		if p.Secrets.Taken(decision.Secret) != "" { // since the decision
			return out, apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, decision.Secret, errTaken)
		}
	}
	if len(decision.Edits) > 0 && (decision.Version == 0 || o.Running) {
		if err := p.CheckCurrent(ctx); err != nil {
			return out, err
		}
	}
	if o.Spec, o.Change, err = c.writer.Write(ctx, o.Object, decision); err != nil {
		return out, err
	}
	p.Secrets.Keep(patch.References(o.Spec)...)
	return out, nil
}

var errTaken = errors.New("another Secret has taken the name")

// Writer writes bootstrap objects. Its methods can be called concurrently.
type Writer struct {
	// Client writes to the API server; its cache knows the kinds.
	Client *backoff.Client
	// Live reads from the API server.
	Live client.Reader
}

// Change is the effect of a write on the entries of an object.
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
func (w *Writer) Write(ctx context.Context, o Object, decision plan.Decision) (patch.Spec, Change, error) {
	if len(decision.Edits) == 0 {
		if len(plan.AnnotationOperations(o.GetAnnotations(), decision.Annotations)) == 0 {
			return o.Spec, Unchanged, nil
		}
		return o.Spec, Unchanged, w.Annotate(ctx, o.BootstrapObject, decision.Annotations)
	}
	change := Added
	if decision.Version == 0 {
		change = Removed
	}
	ctrl.LoggerFrom(ctx).Info("Patching bootstrap object", o.Kind, klog.KObj(o), "edits", len(decision.Edits),
		"removing", change == Removed)
	answer, err := w.send(ctx, o, decision, nil)
	if apierrors.IsInvalid(err) {
		answer, err = w.sendKeepingUnknown(ctx, o, decision, err)
	}
	if err != nil {
		if client.IgnoreNotFound(err) == nil {
			return o.Spec, Unchanged, nil // deleted meanwhile; its deletion enqueues the Cluster
		}
		return o.Spec, Unchanged, fmt.Errorf("patching %s: %w", o, err)
	}
	spec := kinds.View(answer)
	switch {
	case isDone(spec, decision):
		return spec, change, nil
	case plan.IsPausedByUs(o.GetAnnotations()): // it is contested: Cluster API continues meanwhile
		return spec, Unchanged, w.Annotate(ctx, answer, map[string]string{clusterv1.PausedAnnotation: ""})
	}
	return spec, Unchanged, nil
}

// send sends the edits of a decision, and returns the object that the API server answers, or o if the write is skipped.
// text is o in JSON. Without it, the patch is made from the type of o, and the API server refuses it if it would
// replace fields that the type does not know.
func (w *Writer) send(ctx context.Context, o Object, decision plan.Decision, text []byte) (
	kinds.BootstrapObject, error,
) {
	data, err := json.Marshal(operations(o, decision, text))
	if err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	// The client decodes the answer into an object, and keeps what the answer lacks: o would keep a list that is removed.
	answer := kinds.NewBootstrapObject(o.Kind)
	answer.SetNamespace(o.GetNamespace())
	answer.SetName(o.GetName())
	answer.SetResourceVersion(o.GetResourceVersion())
	if err := w.patchJSON(ctx, answer, data); err != nil {
		return nil, err
	}
	if answer.GetUID() == "" { // no API server has answered
		return o.BootstrapObject, nil
	}
	return answer, nil
}

// sendKeepingUnknown sends refused edits again, for o as the API server has it.
func (w *Writer) sendKeepingUnknown(ctx context.Context, o Object, decision plan.Decision, refused error) (
	kinds.BootstrapObject, error,
) {
	live := &unstructured.Unstructured{}
	kind, err := w.Client.GroupVersionKindFor(o.BootstrapObject)
	if err == nil {
		live.SetGroupVersionKind(kind)
		err = w.Live.Get(ctx, client.ObjectKeyFromObject(o), live)
	}
	if err != nil {
		return nil, refused
	}
	text, err := live.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	return w.send(ctx, o, decision, text)
}

// isDone reports whether spec is as decided. It is not if the write was contested, or others undid it in the request.
func isDone(spec patch.Spec, decision plan.Decision) bool {
	if decision.Version == 0 || decision.Recipe == nil {
		return len(patch.Remove(spec)) == 0
	}
	left, err := patch.Ensure(spec, *decision.Recipe)
	return err == nil && len(left.Edits) == 0
}

// patchJSON sends a JSON patch that was computed for a version of object. The API server applies a patch before it
// checks the version: a patch for an old version, from a cache that is behind, may be impossible on the current one.
// That is a conflict like any other.
func (w *Writer) patchJSON(ctx context.Context, object client.Object, data []byte) error {
	version := object.GetResourceVersion()
	err := w.Client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, data), client.FieldOwner(contract.Name))
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
	return CacheBehind(kind.Kind, object)
}

// operations is the JSON patch of a decision on o. It fails on the API server if o has changed since it was read.
func operations(o Object, decision plan.Decision, text []byte) []patch.Operation {
	ops := []patch.Operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: o.GetResourceVersion()}}
	ops = append(ops, patch.Operations(kinds.Locate(o.BootstrapObject, text), o.Spec, decision.Edits)...)
	return append(ops, plan.AnnotationOperations(o.GetAnnotations(), decision.Annotations)...)
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

// CacheBehind is the conflict error for an object of a kind in a cache that is behind.
func CacheBehind(kind string, object client.Object) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: kind}, object.GetName(), errors.New("the cache is behind"))
}

// CheckCurrent returns a conflict unless a cached Cluster asks for the same as that of the API server. With a cache
// from before a label or an annotation was set or removed, a pass would undo the work of an earlier one, and the next
// pass would do it again, if it can.
func CheckCurrent(ctx context.Context, api client.Reader, cached *clusterv1.Cluster) error {
	live := &clusterv1.Cluster{}
	err := api.Get(ctx, client.ObjectKeyFromObject(cached), live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Cluster %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	if err != nil || !asksTheSame(live, cached) {
		return CacheBehind("Cluster", cached)
	}
	return nil
}

// asksTheSame reports whether users ask for the same in two versions of a Cluster.
func asksTheSame(a, b *clusterv1.Cluster) bool {
	differs := func(of func(*clusterv1.Cluster) map[string]string, names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return of(a)[name] != of(b)[name] })
	}
	annotations := append(contract.UserAnnotations(), contract.AnnotationTopologyHold, clusterv1.PausedAnnotation)
	return a.UID == b.UID && a.Generation == b.Generation &&
		a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero() &&
		!differs(func(c *clusterv1.Cluster) map[string]string { return c.Labels }, contract.UserLabels()) &&
		!differs(func(c *clusterv1.Cluster) map[string]string { return c.Annotations }, annotations)
}
