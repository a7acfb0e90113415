package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// admit answers a request.
func (w *Webhook) admit(ctx context.Context, kind string, request *admissionv1.AdmissionRequest) (answer, error) {
	if isOurs(request) || !w.Scope.HasNamespace(request.Namespace) {
		return answer{}, nil
	}
	switch kind {
	case KindCluster:
		return w.admitCluster(ctx, request), nil
	case KindNames:
		return w.admitNames(ctx, request)
	}
	object, err := decode(kind, request)
	if err != nil {
		return answer{}, err
	}
	switch {
	case !object.asked.Readable:
		return answer{}, nil // and refused by the API server
	case object.asked.deleted, plan.IsTopologyOwned(object.asked.labels):
		return answer{}, nil
	case kind == plan.KindConfig && (object.ofControlPlane() || object.created && patch.IsPatched(object.asked.Spec)):
		return answer{}, nil // a KubeadmConfig that is cloned from a patched template is as it should be
	case kind == plan.KindConfig && !object.created && (object.hasOwner("Machine") || object.hasOwner("MachineSet")):
		return answer{}, nil // Cluster API is at work on it
	}
	found, err := w.owner(ctx, object)
	rolls := found.cluster != nil && object.rolls(w.Now())
	if rolls {
		found.cluster = w.clusterOfNow(ctx, found.cluster)
	}
	if err != nil || found.cluster == nil || !w.Scope.Has(found.cluster.Namespace, found.cluster.Labels) {
		return answer{}, err
	}
	a := &admission{Webhook: w, write: object, rolling: rolls, found: found, view: intent.ClusterOf(found.cluster)}
	reported := meta.FindStatusCondition(found.cluster.Status.Conditions, contract.ConditionProxyConfigured) != nil
	if a.view.Topology || !a.view.Enabled && a.view.Unclear == nil && !reported {
		return answer{}, nil // never ours, or not any more
	}
	result, err := a.decide(ctx)
	if err != nil {
		return answer{}, err
	}
	return a.answer(ctx, result), nil
}

// admission is one write to an object of a Cluster that is enabled, or was and still has our condition.
type admission struct {
	*Webhook
	write

	// rolling reports whether the write replaces the Machines of a control plane.
	rolling bool
	found   owner
	view    intent.Cluster
}

// decide returns what happens to the object.
func (a *admission) decide(ctx context.Context) (plan.Decision, error) {
	want := plan.Want{
		Cluster: a.view.Name, Enabled: a.view.Enabled, Frozen: a.view.Paused || a.view.Deleted,
		Admission: true,
	}
	options, err := intent.ParseOptions(a.view.Annotations)
	switch {
	case a.view.Unclear != nil:
		want.Unusable = invalid("Cluster " + a.view.Namespace + "/" + a.view.Name + ": " + a.view.Unclear.Error())
	case err == nil:
		want.Options = options
	case a.view.Enabled:
		want.Unusable = new(finding.Of(err).One())
	default:
		want.Options = intent.Options{Rollout: contract.RolloutOnNextRollout} // removal continues, whatever it says
	}
	object := plan.Object{
		Kind: a.kind, Name: a.String(), Labels: a.asked.labels, Annotations: a.asked.annotations,
		Spec: a.asked.Spec, Pools: a.found.pools, Foreign: a.found.foreign,
		OfMachine: a.hasOwner("Machine") || a.hasOwner("MachineSet"),
		Running:   a.isRunning(), Busy: !plan.AtRest(a.stored.paused),
		Rolls: a.rolling,
		Write: &plan.Write{
			Stored: a.stored.Spec, Annotations: a.stored.annotations, Creates: a.created,
		},
		Facts: plan.Facts{Taken: map[string]string{}},
	}
	for {
		decision := plan.Decide(object, want)
		if decision.Ask == plan.NoFact {
			a.Counters.Rendered("webhook", decision.Outcome())
			return decision, nil
		}
		if err := a.answerTo(ctx, &object, decision); err != nil {
			return plan.Decision{}, err
		}
	}
}

func invalid(message string) *finding.Finding {
	return &finding.Finding{Reason: contract.ReasonInvalidSettings, Message: message}
}

// answerTo finds a fact that a decision asks for.
func (a *admission) answerTo(ctx context.Context, object *plan.Object, asks plan.Decision) error {
	var err error
	facts := &object.Facts
	switch asks.Ask {
	case plan.FactValues:
		facts.Values = a.values(ctx, *object)
	case plan.FactTaken:
		key := types.NamespacedName{Namespace: a.view.Namespace, Name: asks.Name}
		facts.Taken[asks.Name], err = lookup.GeneratedSecrets{Cached: a.Cached, Live: a.Live, Absences: a.Absences}.Taken(ctx,
			key, a.view.Name)
	case plan.FactInfrastructure:
		facts.Infrastructure, err = a.infrastructure(ctx, object.Pools)
	case plan.FactBegun:
		var begun bool
		begun, err = lookup.ControlPlanes{Cached: a.Cached, Live: a.Live}.Begun(ctx, a.view.Namespace, a.view.Name)
		if facts.Begun = &begun; facts.Values != nil {
			facts.Values.Recipe = asks.Recipe
		}
	default:
		err = fmt.Errorf("internal error: %s: fact %d is not implemented", a, asks.Ask)
	}
	return err
}

// values are the settings as far as entries depend on them: the generated Secret shows whether they have a proxy URL.
func (a *admission) values(ctx context.Context, object plan.Object) *plan.Values {
	key := types.NamespacedName{Namespace: a.view.Namespace, Name: object.GeneratedSecret(a.view.Name)}
	names := lookup.GeneratedSecrets{Cached: a.Cached}
	return &plan.Values{
		Resolution: &resolve.Resolution{},
		TrustOnly:  names.HasOnlyCertificates(ctx, key, a.view.Name),
	}
}

// infrastructure asks for the machine templates of pools.
func (a *admission) infrastructure(ctx context.Context, pools []plan.Pool) (*plan.Infrastructure, error) {
	for _, pool := range pools {
		template, err := a.Infrastructure.Template(ctx, a.namespace, pool.Infrastructure, true)
		switch {
		case err != nil:
			return nil, err
		case template.Windows != "":
			return &plan.Infrastructure{Windows: template.Windows}, nil
		case !template.Exists:
			return &plan.Infrastructure{Missing: pool.Infrastructure.Name}, nil
		}
	}
	return &plan.Infrastructure{}, nil
}

// answer converts a decision into a JSON patch and warnings. It does not warn about what resolves itself, nor about
// what the user has asked for.
func (a *admission) answer(ctx context.Context, decision plan.Decision) answer {
	var warnings []string
	for _, found := range decision.Report() {
		switch found.Reason {
		case contract.ReasonPaused, contract.ReasonWaitingForRollout, contract.ReasonRemovalWaiting,
			contract.ReasonWaitingForObjects:
		default:
			warnings = append(warnings, contract.Name+": "+found.String())
		}
	}
	operations := append(patch.Operations(a.asked.At, a.asked.Spec, decision.Edits),
		plan.AnnotationOperations(a.asked.annotations, decision.Annotations)...)
	if len(operations) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Patching at admission", "edits", len(decision.Edits))
	} else if len(warnings) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Admitting unchanged", "warnings", len(warnings))
	}
	return answer{operations: operations, warnings: warnings}
}
