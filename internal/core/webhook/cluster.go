package webhook

import (
	"context"
	"fmt"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// The failure policy is Fail: if the webhook is down, a label that is set on a running Cluster would replace the
// Machines of the Cluster. Few writes are sent here, because the match conditions in config/webhook select only those
// that the webhook can change.
//
// +kubebuilder:webhook:path=/mutate-cluster-x-k8s-io-v1beta2-cluster,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,reinvocationPolicy=IfNeeded,timeoutSeconds=5,admissionReviewVersions=v1,groups=cluster.x-k8s.io,resources=clusters,verbs=update,versions=v1beta2,name=cluster.capi-proxy-patcher.io

// KindCluster is the kind of object whose webhook keeps contract.AnnotationTopologyHold and
// contract.AnnotationEnabledBefore.
const KindCluster = "Cluster"

// admitCluster answers a write to a Cluster. What it cannot read passes unchanged.
func (w *Webhook) admitCluster(ctx context.Context, request *admissionv1.AdmissionRequest) answer {
	var stored, requested clusterv1.Cluster
	if request.Operation != admissionv1.Update ||
		kinds.Decode(request.OldObject.Raw, &stored) != nil ||
		kinds.Decode(request.Object.Raw, &requested) != nil ||
		!w.Scope.Has(request.Namespace, requested.Labels) {
		return answer{}
	}
	after := decideCluster(&stored, &requested)
	a := answer{operations: plan.AnnotationOperations(requested.Annotations, after.annotations)}
	if hold, held := settings.FreezeOf(after.annotations); held && after.turns {
		verb := "get"
		if hold.Enabled {
			verb = "lose"
		}
		a.warnings = []string{fmt.Sprintf(
			"%s: Machines that run Kubernetes %s %s the proxy with their next upgrade, or when annotation %s is %s",
			contract.Name, hold.Version, verb, contract.AnnotationRollout, contract.RolloutImmediate)}
	}
	if len(a.operations) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Freezing templates of a topology", "hold",
			after.annotations[contract.AnnotationTopologyHold])
	}
	return a
}

// decision is the outcome of a write to a Cluster.
type decision struct {
	// annotations are the wanted values of annotations; "" removes one.
	annotations map[string]string
	// turns reports whether the write changes the meaning of the label.
	turns bool
}

// decideCluster decides about the annotations of a topology in a write that changes the Cluster stored to requested.
// Annotations that it does not return stay as the write has them.
func decideCluster(stored, requested *clusterv1.Cluster) decision {
	if !stored.Spec.Topology.IsDefined() || !requested.Spec.Topology.IsDefined() || !requested.DeletionTimestamp.IsZero() {
		return decision{}
	}
	d := decision{annotations: map[string]string{contract.AnnotationEnabledBefore: ""}}
	was, is := settings.IsEnabled(stored.Labels), settings.IsEnabled(requested.Labels)
	before := stored.Annotations[contract.AnnotationEnabledBefore]
	wasUnclear, isUnclear := settings.StateOf(stored.Labels) == settings.Unclear,
		settings.StateOf(requested.Labels) == settings.Unclear
	switch {
	case wasUnclear && before != "":
		was = before == contract.LabelEnabledValue
	case wasUnclear:
		was = is // nobody knows
	default:
		before = strconv.FormatBool(was)
	}
	if isUnclear {
		is, d.annotations[contract.AnnotationEnabledBefore] = was, before
	}
	d.turns = was != is
	immediate := requested.Annotations[contract.AnnotationRollout] == contract.RolloutImmediate && !isUnclear
	if hold, decided := holdAfter(stored, was, is, immediate); decided {
		d.annotations[contract.AnnotationTopologyHold] = hold
	}
	return d
}

// holdAfter decides the value of contract.AnnotationTopologyHold after a write to the Cluster stored; "" removes it.
// was and is report whether the Cluster asks for the proxy before and after the write. If nothing is decided, the
// annotation stays as the write has it.
//
// A hold begins when the label changes while the Cluster runs, unless the Cluster asks for RolloutImmediate. It
// survives writes of manifests without the annotation, and ends when the label has its former value again or the
// Cluster asks for RolloutImmediate. A label that is restored after an upgrade has changed some objects changes these
// again and begins another hold. The controller ends a hold when nothing runs the version any more.
func holdAfter(stored *clusterv1.Cluster, was, is, immediate bool) (value string, decided bool) {
	version := stored.Spec.Topology.Version
	hold, held := settings.FreezeOf(stored.Annotations)
	running := ptr.Deref(stored.Status.Initialization.ControlPlaneInitialized, false)
	switch {
	case immediate:
		return "", held
	case was != is && running && (!held || hold.Version != version || hold.Enabled != is):
		return settings.Freeze{Enabled: was, Version: version}.String(), true
	case held && hold.Enabled != is:
		return hold.String(), true
	default:
		return "", held
	}
}
