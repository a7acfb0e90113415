package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	proxysource "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// write carries out edits on o, or adds the finding that they wait for a rollout. version is the output version to
// record; zero takes the record off.
func (r *reconciliation) write(ctx context.Context, o *bootstrapObject, edits []patch.Edit, version int, options proxysource.Options) error {
	if len(edits) == 0 {
		r.keepReferences(*o)
		return nil
	}
	if o.running && (o.kind == kindConfig || options.Rollout != contract.RolloutImmediate) {
		r.keepReferences(*o)
		r.reportWaiting(*o, version)
		return nil
	}
	data, err := json.Marshal(operations(*o, edits, version))
	if err != nil {
		return fmt.Errorf("encoding patch of %s: %w", o, err)
	}
	removed := version == 0
	ctrl.LoggerFrom(ctx).Info("Patching bootstrap object", o.kind, klog.KObj(o.object), "edits", len(edits), "removing", removed)
	if err := r.Client.Patch(ctx, o.object, client.RawPatch(types.JSONPatchType, data), client.FieldOwner(contract.Name)); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil // gone since; its deletion brings the Cluster back
		}
		return fmt.Errorf("patching %s: %w", o, err)
	}
	o.spec = patch.SpecOf(specOf(o.object))
	if removed {
		r.eventRemoved(r.cluster, o.String())
	} else {
		r.eventInjected(r.cluster, o.String())
	}
	return nil
}

// reportWaiting says what edits of a running object wait for.
func (r *reconciliation) reportWaiting(o bootstrapObject, version int) {
	reason, verb := contract.ReasonWaitingForRollout, "gets"
	if version == 0 {
		reason, verb = contract.ReasonRemovalWaiting, "loses"
	}
	if o.kind == kindConfig {
		r.found.note("%s has its bootstrap data already, which stays as it is; a new KubeadmConfig %s the current proxy", o, verb)
		return
	}
	r.found.add(reason, "%s has Machines, which a change would replace; it %s the current proxy when annotation %s of the Cluster is %s",
		o, verb, contract.AnnotationRollout, contract.RolloutImmediate)
}

// operations is the JSON patch of edits on o. It fails on the API server if o has changed since it was read, and
// if a part of the spec exists that the program's types do not show.
func operations(o bootstrapObject, edits []patch.Edit, version int) []patch.Operation {
	ops := []patch.Operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: o.object.GetResourceVersion()}}
	if o.location.Missing > 0 {
		ops = append(ops, patch.Operation{Op: "test", Path: o.location.Parents[len(o.location.Parents)-1], Value: json.RawMessage("null")})
	}
	ops = append(ops, patch.Operations(o.location, o.spec, edits)...)

	annotations := o.object.GetAnnotations()
	path := "/metadata/annotations/" + strings.ReplaceAll(contract.AnnotationOutputVersion, "/", "~1")
	_, recorded := annotations[contract.AnnotationOutputVersion]
	switch {
	case version == 0 && recorded:
		ops = append(ops, patch.Operation{Op: "remove", Path: path})
	case version == 0:
	case annotations == nil:
		ops = append(ops, patch.Operation{
			Op: "add", Path: "/metadata/annotations",
			Value: map[string]string{contract.AnnotationOutputVersion: strconv.Itoa(version)},
		})
	default:
		ops = append(ops, patch.Operation{Op: "add", Path: path, Value: strconv.Itoa(version)})
	}
	return ops
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
