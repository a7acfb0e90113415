package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// write carries out the edits of a decision on o, unless somebody keeps reverting them, and its annotations.
func (r *reconciliation) write(ctx context.Context, o *bootstrapObject, decision plan.Decision) error {
	edits, annotations := decision.Edits, decision.Annotations
	contest, sum := contestKey{uid: o.object.GetUID()}, digestOf(edits)
	if r.contested(o.String(), contest, sum) {
		edits, annotations = nil, map[string]string{}
		if plan.IsPausedByUs(o.object.GetAnnotations()) {
			annotations[clusterv1.PausedAnnotation] = ""
		}
	}
	if len(edits) == 0 {
		r.keepReferences(*o)
		if len(plan.AnnotationOperations(o.object.GetAnnotations(), annotations)) == 0 {
			return nil
		}
		return r.annotate(ctx, o.object, annotations)
	}
	data, err := json.Marshal(operations(*o, edits, annotations))
	if err != nil {
		return fmt.Errorf("encoding patch of %s: %w", o, err)
	}
	if err := r.announce(ctx, decision); err != nil {
		return err
	}
	removed, rival := decision.Version == 0, r.rival(ctx, *o, edits)
	ctrl.LoggerFrom(ctx).Info("Patching bootstrap object", o.kind, klog.KObj(o.object), "edits", len(edits), "removing", removed)
	if err := r.patchJSON(ctx, o.object, data); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil // gone since; its deletion brings the Cluster back
		}
		return fmt.Errorf("patching %s: %w", o, err)
	}
	r.contests.wrote(contest, sum, r.Now(), rival)
	o.spec = patch.SpecOf(specOf(o.object))
	if removed {
		r.eventRemoved(r.cluster, o.object, o.String())
	} else {
		r.eventInjected(r.cluster, o.object, o.String())
	}
	return nil
}

// writtenMemory is how long a version is remembered that this process has written. A cache that is further behind stops
// Cluster API, too.
const writtenMemory = time.Hour

// isBehind reports whether object comes from a cache that does not show yet what this process has written into it. A removal
// that goes by such a cache finds nothing to take out, and forgets the Cluster.
func (c *Controller) isBehind(object client.Object) bool {
	written, found := c.written.Get(object.GetUID(), c.Now())
	if !found {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), written)
	return err == nil && order < 0
}

// patchJSON sends a JSON patch that was computed for a version of object. The API server carries a patch out before it
// looks at the version: one for a version of the past, which a cache that is behind shows, can be impossible on the present
// one. That is a conflict like any other.
func (c *Controller) patchJSON(ctx context.Context, object client.Object, data []byte) error {
	version := object.GetResourceVersion()
	err := c.Client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, data), client.FieldOwner(contract.Name))
	if err == nil {
		now := c.Now()
		c.written.Put(object.GetUID(), object.GetResourceVersion(), now, now.Add(writtenMemory))
		return nil
	}
	if !apierrors.IsInvalid(err) {
		return err
	}
	kind, kindErr := c.Client.GroupVersionKindFor(object)
	if kindErr != nil {
		return err
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(kind)
	if getErr := c.Live.Get(ctx, client.ObjectKeyFromObject(object), live); getErr != nil || live.ResourceVersion == version {
		return err
	}
	return stale(kind.Kind, object)
}

// announce leaves a condition on the Cluster before its first object is patched. If this process is killed then, and the
// label goes before the next one starts, nothing else would tell that one whose entries these are. Delivery Reference has
// written a generated Secret by then, which does.
func (r *reconciliation) announce(ctx context.Context, decision plan.Decision) error {
	if decision.Version == 0 || decision.Secret != "" || r.announced ||
		meta.FindStatusCondition(r.cluster.Status.Conditions, contract.ConditionProxyConfigured) != nil {
		return nil
	}
	r.announced = true
	var begun findings
	begun.add(contract.ReasonConfiguring, "The first bootstrap object is being patched")
	return r.report(ctx, r.cluster, begun, "")
}

// waitForRollout brings the Cluster back when the user has the Machines of a control plane replaced.
func (r *reconciliation) waitForRollout(o bootstrapObject) {
	if left := o.rollout.Sub(r.Now()); !o.rollout.IsZero() && left > 0 {
		r.lookAgain(left)
	}
}

// operations is the JSON patch of edits on o. It fails on the API server if o has changed since it was read, and
// if a part of the spec exists that the program's types do not show.
func operations(o bootstrapObject, edits []patch.Edit, annotations map[string]string) []patch.Operation {
	ops := []patch.Operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: o.object.GetResourceVersion()}}
	if o.location.Missing > 0 {
		outermost := o.location.Parents[len(o.location.Parents)-o.location.Missing]
		ops = append(ops, patch.Operation{Op: "test", Path: outermost, Value: json.RawMessage("null")})
	}
	ops = append(ops, patch.Operations(o.location, o.spec, edits)...)
	return append(ops, plan.AnnotationOperations(o.object.GetAnnotations(), annotations)...)
}

// specOf returns the bootstrap spec of an object.
func specOf(object client.Object) *bootstrapv1.KubeadmConfigSpec {
	switch o := object.(type) {
	case *controlplanev1.KubeadmControlPlane:
		return &o.Spec.KubeadmConfigSpec
	case *bootstrapv1.KubeadmConfigTemplate:
		return &o.Spec.Template.Spec
	case *bootstrapv1.KubeadmConfig:
		return &o.Spec
	}
	return &bootstrapv1.KubeadmConfigSpec{}
}
