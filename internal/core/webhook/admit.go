package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
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
	switch {
	case err != nil || object == nil:
		return answer{}, err
	case !object.requested.GetDeletionTimestamp().IsZero(), plan.IsTopologyOwned(object.requested.GetLabels()):
		return answer{}, nil
	case kind == plan.KindConfig &&
		(object.ofControlPlane() || object.created && patch.IsPatched(kinds.View(object.requested.BootstrapObject))):
		return answer{}, nil // a KubeadmConfig that is cloned from a patched template is as it should be
	case kind == plan.KindConfig && !object.created && (object.hasOwner("Machine") || object.hasOwner("MachineSet")):
		return answer{}, nil // Cluster API is at work on it
	}
	found, err := w.owner(ctx, *object)
	rolls := found.cluster != nil && object.rolls(w.Now())
	if rolls {
		found.cluster = w.clusterOfNow(ctx, found.cluster)
	}
	if err != nil || found.cluster == nil || !w.Scope.Has(found.cluster.Namespace, found.cluster.Labels) {
		return answer{}, err
	}
	a := &ownedWrite{Webhook: w, write: *object, rolling: rolls, found: found, view: settings.ClusterOf(found.cluster)}
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

// ownedWrite is a write to an object of a Cluster that is enabled, or was and still has our condition.
type ownedWrite struct {
	*Webhook
	write

	// rolling reports whether the write replaces the Machines of a control plane.
	rolling bool
	found   owner
	view    settings.Cluster
}

// decide returns the decision about the object.
func (a *ownedWrite) decide(ctx context.Context) (plan.Decision, error) {
	want := plan.Want{
		Cluster: a.view.Name, Enabled: a.view.Enabled, Frozen: a.view.Paused || a.view.Deleted,
		Admission: true,
	}
	options, err := settings.ParseOptions(a.view.Annotations)
	switch {
	case a.view.Unclear != nil:
		want.Unusable = invalid("Cluster " + a.view.Namespace + "/" + a.view.Name + ": " + a.view.Unclear.Error())
	case err == nil:
		want.Options = options
	case a.view.Enabled:
		want.Unusable = new(finding.Of(err).One())
	default:
		want.Options = settings.Options{Rollout: contract.RolloutOnNextRollout} // removal continues, whatever it says
	}
	object := plan.Object{
		Kind: a.kind, Name: a.String(), Labels: a.requested.GetLabels(), Annotations: a.requested.GetAnnotations(),
		Spec: kinds.View(a.requested.BootstrapObject), Pools: a.found.pools, Foreign: a.found.foreign,
		OfMachine: a.hasOwner("Machine") || a.hasOwner("MachineSet"),
		Running:   a.isRunning(), Busy: a.isBusy(),
		Rolls: a.rolling,
		Write: &plan.Write{
			Stored: kinds.View(a.stored.BootstrapObject), Annotations: a.stored.GetAnnotations(), Creates: a.created,
		},
	}
	decision, err := plan.Decide(object, want, facts{a, ctx})
	if err == nil && a.Rendered != nil {
		a.Rendered(decision.Outcome())
	}
	return decision, err
}

func invalid(message string) *finding.Finding {
	return &finding.Finding{Reason: contract.ReasonInvalidSettings, Message: message}
}

// facts implements plan.Facts for a write.
type facts struct {
	*ownedWrite

	ctx context.Context //nolint:containedctx // lives as long as the decision that it is made for
}

// Values are the settings as far as entries depend on them: the generated Secret shows whether they have a proxy URL.
func (f facts) Values(o plan.Object) (plan.Values, error) {
	key := types.NamespacedName{Namespace: f.view.Namespace, Name: o.GeneratedSecret(f.view.Name)}
	names := world.GeneratedSecrets{Cached: f.Cached}
	return plan.Values{Resolution: &settings.Resolution{Files: names.Files(f.ctx, key, f.view.Name)}}, nil
}

func (f facts) Taken(_ plan.Object, secret string) (string, error) {
	names := world.GeneratedSecrets{Cached: f.Cached, Live: f.Live}
	return names.Taken(f.ctx, types.NamespacedName{Namespace: f.view.Namespace, Name: secret}, f.view.Name)
}

func (f facts) Infrastructure(o plan.Object) (plan.Infrastructure, error) {
	found, _, err := f.Memory.Templates(f.ctx, f.namespace, o.Pools, true)
	return found, err
}

func (f facts) Begun() (bool, error) {
	return world.ControlPlanes{Cached: f.Cached, Live: f.Live}.Begun(f.ctx, f.view.Namespace, f.view.Name)
}

// answer converts a decision into a JSON patch and warnings. It does not warn about problems that resolve themselves or
// that the user has asked for.
func (a *ownedWrite) answer(ctx context.Context, decision plan.Decision) answer {
	var warnings []string
	for _, found := range decision.Report() {
		switch contract.ReasonOf(found.Reason).Task {
		case contract.TaskWait, contract.TaskRollOut:
		default:
			warnings = append(warnings, contract.Name+": "+found.String())
		}
	}
	for _, found := range settings.CheckBootstrap(a.requested.GetAnnotations()) {
		warnings = append(warnings, contract.Name+": "+found.String())
	}
	at, spec := kinds.Locate(a.requested.BootstrapObject, a.requested.text), kinds.View(a.requested.BootstrapObject)
	operations := append(patch.Operations(at, spec, decision.Edits),
		plan.AnnotationOperations(a.requested.GetAnnotations(), decision.Annotations)...)
	if len(operations) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Patching at admission", "edits", len(decision.Edits))
	} else if len(warnings) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Admitting unchanged", "warnings", len(warnings))
	}
	return answer{operations: operations, warnings: warnings}
}
