package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// This webhook refuses a write that it cannot answer: a label that is set on a running Cluster while it is away would
// replace the Machines of the Cluster. Few writes come here, because the match conditions in config/webhook let pass only
// those that it has an answer for.
//
// +kubebuilder:webhook:path=/mutate-cluster-x-k8s-io-v1beta2-cluster,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,reinvocationPolicy=IfNeeded,timeoutSeconds=5,admissionReviewVersions=v1,groups=cluster.x-k8s.io,resources=clusters,verbs=update,versions=v1beta2,name=cluster.capi-proxy-patcher.io

// KindCluster is the kind of object whose webhook keeps contract.AnnotationTopologyHold and contract.AnnotationEnabledBefore.
const KindCluster = "Cluster"

// admitCluster answers a write to a Cluster. What it cannot read passes unchanged.
func admitCluster(ctx context.Context, request *admissionv1.AdmissionRequest) answer {
	var stored, asked clusterv1.Cluster
	if request.Operation != admissionv1.Update ||
		json.Unmarshal(request.OldObject.Raw, &stored) != nil || json.Unmarshal(request.Object.Raw, &asked) != nil {
		return answer{}
	}
	after := decideCluster(&stored, &asked)
	a := answer{operations: plan.AnnotationOperations(asked.Annotations, after.annotations)}
	if hold, held := intent.FreezeOf(after.annotations); held && after.turns {
		verb := "get"
		if hold.Enabled {
			verb = "lose"
		}
		a.warnings = []string{fmt.Sprintf("%s: Machines that run Kubernetes %s %s the proxy with their next upgrade, or when annotation %s is %s",
			contract.Name, hold.Version, verb, contract.AnnotationRollout, contract.RolloutImmediate)}
	}
	if len(a.operations) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Holding templates of a topology", "hold", after.annotations[contract.AnnotationTopologyHold])
	}
	return a
}

// decision is what a write to a Cluster comes to.
type decision struct {
	// annotations are the values that annotations are to have; "" is that there is to be none.
	annotations map[string]string
	// turns reports whether the write turns the label on or off.
	turns bool
}

// decideCluster decides what becomes of the annotations of a topology in a write that turns the Cluster stored into asked.
// Those that it does not name are as the write has them.
func decideCluster(stored, asked *clusterv1.Cluster) decision {
	if !stored.Spec.Topology.IsDefined() || !asked.Spec.Topology.IsDefined() || !asked.DeletionTimestamp.IsZero() {
		return decision{}
	}
	d := decision{annotations: map[string]string{contract.AnnotationEnabledBefore: ""}}
	was, is := intent.IsEnabled(stored.Labels), intent.IsEnabled(asked.Labels)
	before := stored.Annotations[contract.AnnotationEnabledBefore]
	wasUnclear, isUnclear := intent.StateOf(stored.Labels) == intent.Unclear, intent.StateOf(asked.Labels) == intent.Unclear
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
	immediate := asked.Annotations[contract.AnnotationRollout] == contract.RolloutImmediate && !isUnclear
	if hold, decided := holdAfter(stored, was, is, immediate); decided {
		d.annotations[contract.AnnotationTopologyHold] = hold
	}
	return d
}

// holdAfter decides what contract.AnnotationTopologyHold is to be after a write to the Cluster stored that asked for the
// proxy if was, and then asks for it if is; "" is that there is to be none. If it has not decided, the
// annotation is as the write has it.
//
// A hold begins when the label comes or goes while the Cluster runs, unless the Cluster asks for RolloutImmediate. It
// lasts, whoever writes a manifest without it, until the label is back as it was or the Cluster asks for RolloutImmediate.
// A label that is back when an upgrade has already changed some objects is a change of those, and begins another one.
// The controller ends a hold when nothing runs the version any more.
func holdAfter(stored *clusterv1.Cluster, was, is, immediate bool) (value string, decided bool) {
	version := stored.Spec.Topology.Version
	hold, held := intent.FreezeOf(stored.Annotations)
	initialized := stored.Status.Initialization.ControlPlaneInitialized
	running := initialized != nil && *initialized
	switch {
	case immediate:
		return "", held
	case was != is && running && (!held || hold.Version != version || hold.Enabled != is):
		return intent.Freeze{Enabled: was, Version: version}.String(), true
	case held && hold.Enabled != is:
		return hold.String(), true
	default:
		return "", held
	}
}
