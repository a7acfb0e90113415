package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	proxysource "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// write carries out edits on o, or adds the finding that they wait for a rollout. version is the output version to
// record; zero takes the record off.
func (r *reconciliation) write(ctx context.Context, o *bootstrapObject, edits []patch.Edit, version int, options proxysource.Options) error {
	held := plan.IsHeld(o.object.GetAnnotations())
	if len(edits) > 0 && !o.running && o.busy && held {
		return r.stop(ctx, o) // Cluster API has not noticed yet
	}
	if len(edits) > 0 && !o.running && o.kind == plan.KindControlPlane {
		var err error
		if o.running, err = r.isBegun(ctx); err != nil {
			return err
		}
	}
	if len(edits) > 0 && r.waits(*o, options) {
		r.reportWaiting(*o, version)
		r.waitForRollout(*o)
		edits = nil
	}
	contest, sum := contestKey{uid: o.object.GetUID()}, digestOf(edits)
	if r.contested(o.String(), contest, sum) {
		edits = nil
	}
	if len(edits) == 0 {
		r.keepReferences(*o)
		if held {
			return r.annotate(ctx, o.object, map[string]string{clusterv1.PausedAnnotation: ""})
		}
		return nil
	}
	if o.busy && !o.running {
		return r.stop(ctx, o)
	}
	data, err := json.Marshal(operations(*o, edits, version))
	if err != nil {
		return fmt.Errorf("encoding patch of %s: %w", o, err)
	}
	if err := r.announce(ctx, version, options); err != nil {
		return err
	}
	removed, rival := version == 0, r.rival(ctx, *o, edits)
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

// patchJSON sends a JSON patch that was computed for a version of object. The API server carries a patch out before it
// looks at the version: one for a version of the past, which a cache that is behind shows, can be impossible on the present
// one. That is a conflict like any other.
func (c *Controller) patchJSON(ctx context.Context, object client.Object, data []byte) error {
	version := object.GetResourceVersion()
	err := c.Client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, data), client.FieldOwner(contract.Name))
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

// stop pauses a control plane without Machines, so that Cluster API does not create its first Machine from the version that is
// about to be patched. The condition Paused of the control plane brings the Cluster back when Cluster API has noticed.
func (r *reconciliation) stop(ctx context.Context, o *bootstrapObject) error {
	r.keepReferences(*o)
	o.stopped = true
	r.found.add(contract.ReasonConfiguring, "%s is paused by annotation %s; it is patched before it has Machines, once Cluster API confirms the pause",
		o, clusterv1.PausedAnnotation)
	if plan.IsHeld(o.object.GetAnnotations()) {
		return nil
	}
	return r.annotate(ctx, o.object, map[string]string{clusterv1.PausedAnnotation: contract.PausedForPatch})
}

// isBegun reports whether a change of the control plane replaces a Machine. Objects that were patched at admission are
// never asked about.
func (r *reconciliation) isBegun(ctx context.Context) (bool, error) {
	return proxysource.ControlPlanes{Cached: r.Client, Live: r.Live}.Begun(ctx, r.view.Namespace, r.view.Name)
}

// announce leaves a condition on the Cluster before its first object is patched. If this process is killed then, and the
// label goes before the next one starts, nothing else would tell that one whose entries these are. Delivery Reference has
// written a generated Secret by then, which does.
func (r *reconciliation) announce(ctx context.Context, version int, options proxysource.Options) error {
	if version == 0 || options.Delivery != contract.DeliveryInline || r.announced ||
		meta.FindStatusCondition(r.cluster.Status.Conditions, contract.ConditionProxyConfigured) != nil {
		return nil
	}
	r.announced = true
	var begun findings
	begun.add(contract.ReasonConfiguring, "The first bootstrap object is being patched")
	return r.report(ctx, r.cluster, begun, "")
}

// waits reports whether a change of o has to wait until the user rolls it.
func (r *reconciliation) waits(o bootstrapObject, options proxysource.Options) bool {
	return o.running && !r.rollsNow(o) && (o.kind == plan.KindConfig || options.Rollout != contract.RolloutImmediate)
}

// reportWaiting says what edits of a running object wait for.
func (r *reconciliation) reportWaiting(o bootstrapObject, version int) {
	reason, verb := contract.ReasonWaitingForRollout, "gets"
	if version == 0 {
		reason, verb = contract.ReasonRemovalWaiting, "loses"
	}
	if o.kind == plan.KindConfig {
		r.found.add(reason, "%s has its bootstrap data already, which stays as it is; a new KubeadmConfig %s the current proxy", o, verb)
		return
	}
	when := "when"
	if r.Admission {
		when = "with its next rollout, or now when"
	}
	r.found.add(reason, "%s has Machines, which a change would replace; it %s the current proxy %s annotation %s of the Cluster is %s",
		o, verb, when, contract.AnnotationRollout, contract.RolloutImmediate)
}

// waitForRollout brings the Cluster back when the user has the Machines of a control plane replaced.
func (r *reconciliation) waitForRollout(o bootstrapObject) {
	if left := o.rollout.Sub(r.Now()); !o.rollout.IsZero() && left > 0 {
		r.lookAgain(left)
	}
}

// operations is the JSON patch of edits on o. It fails on the API server if o has changed since it was read, and
// if a part of the spec exists that the program's types do not show.
func operations(o bootstrapObject, edits []patch.Edit, version int) []patch.Operation {
	ops := []patch.Operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: o.object.GetResourceVersion()}}
	if o.location.Missing > 0 {
		outermost := o.location.Parents[len(o.location.Parents)-o.location.Missing]
		ops = append(ops, patch.Operation{Op: "test", Path: outermost, Value: json.RawMessage("null")})
	}
	ops = append(ops, patch.Operations(o.location, o.spec, edits)...)

	want := map[string]string{contract.AnnotationOutputVersion: ""}
	if version != 0 {
		want[contract.AnnotationOutputVersion] = strconv.Itoa(version)
	}
	if plan.IsHeld(o.object.GetAnnotations()) {
		want[clusterv1.PausedAnnotation] = ""
	}
	return append(ops, plan.AnnotationOperations(o.object.GetAnnotations(), want)...)
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
