package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// admit answers a request.
func (w *Webhook) admit(ctx context.Context, kind string, request *admissionv1.AdmissionRequest) (answer, error) {
	if isOurs(request) || w.Namespace != "" && request.Namespace != w.Namespace {
		return answer{}, nil
	}
	switch kind {
	case KindCluster:
		return admitCluster(ctx, request), nil
	case KindNames:
		return answer{warnings: unknownNames(request)}, nil
	}
	object, err := decode(kind, request)
	if err != nil {
		return answer{}, err
	}
	switch {
	case !plan.IsReadable(kind, object.asked.Object):
		return answer{}, nil // and refused by the API server
	case object.asked.GetDeletionTimestamp() != nil, plan.IsTopologyOwned(object.asked.GetLabels()):
		return answer{}, nil
	case kind == plan.KindConfig && (object.ofControlPlane() || object.created && patch.IsPatched(object.spec)):
		return answer{}, nil // a KubeadmConfig that is cloned from a patched template is as it should be
	case kind == plan.KindConfig && !object.created && (hasOwner(object, "Machine") || hasOwner(object, "MachineSet")):
		return answer{}, nil // Cluster API is at work on it
	}
	found, err := w.owner(ctx, object)
	if err != nil || found.cluster == nil {
		return answer{}, err
	}
	a := &admission{Webhook: w, write: object, found: found, view: source.ClusterOf(found.cluster)}
	reported := meta.FindStatusCondition(found.cluster.Status.Conditions, contract.ConditionProxyConfigured) != nil
	if a.view.Topology || !a.view.Enabled && a.view.Unclear == nil && !reported {
		return answer{}, nil // never ours, or not any more
	}
	if a.write, err = a.recognize(ctx); err != nil {
		return answer{}, err
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

	found owner
	view  source.Cluster
}

// outcome is what becomes of the object.
type outcome struct {
	// Plan has edits of the spec that the request brings.
	patch.Plan

	// version is the output version to record; zero keeps the record of the stored object.
	version int
	// hold and release say what becomes of the annotation that holds an object back. With neither it stays as it is in the
	// stored object.
	hold, release bool
	// taken is that somebody else has the name of the generated Secret.
	taken    bool
	warnings []string
}

// outcomeOf is the outcome of a plan for the spec of the write.
func (w write) outcomeOf(p patch.Plan) outcome {
	p.Edits = slices.Concat(w.adopted, p.Edits)
	return outcome{Plan: p}
}

// keep leaves the managed entries as they are in the stored object. finding tells the user why, if it is not empty. Where
// they do not fit beside what the write brings, the write stays as it came.
func (a *admission) keep(finding string) outcome {
	kept, err := plan.Keep(a.before, a.spec)
	o := a.outcomeOf(kept)
	if err != nil {
		o, finding = outcome{}, a.String()+": "+err.Error()
	}
	if finding != "" {
		o.warnings = []string{contract.Name + ": " + finding}
	}
	return o
}

// decide says what becomes of the object.
func (a *admission) decide(ctx context.Context) (outcome, error) {
	object := plan.Object{
		Name: a.String(), Labels: a.asked.GetLabels(), Annotations: a.asked.GetAnnotations(),
		Spec: a.spec, Pools: a.found.pools, Foreign: a.found.foreign,
	}
	if a.view.Paused || a.view.Deleted {
		return a.keep(""), nil
	}
	if a.view.Unclear != nil {
		return a.keep("Cluster " + a.view.Namespace + "/" + a.view.Name + ": " + a.view.Unclear.Error()), nil //nolint:nilerr // it is the warning
	}
	if finding := plan.LeaveAlone(object); finding != nil {
		if finding.Reason == contract.ReasonPaused {
			return a.keep(""), nil // whoever paused it knows
		}
		return a.keep(finding.Message), nil
	}
	if a.kind == plan.KindTemplate && len(a.found.pools) == 0 {
		return a.keep(""), nil // nobody uses it, or not yet, so its proxy Secret is not known
	}
	options, err := source.ParseOptions(a.view.Annotations)
	if err != nil {
		if a.view.Enabled {
			return a.keep(strings.ReplaceAll(err.Error(), "\n", "; ")), nil
		}
		options = source.Options{Rollout: contract.RolloutOnNextRollout} // whatever it says, removal goes on
	}
	rolls := a.kind == plan.KindControlPlane && !a.created && plan.Rolls(a.stored.Object, a.asked.Object, a.Now())
	free := a.kind == plan.KindControlPlane && (rolls || options.Rollout == contract.RolloutImmediate)
	if !free && (a.hasData() || a.replicas() > 0) {
		return a.keep(""), nil
	}
	goal, err := a.goal(ctx, object, options, rolls)
	if goal.taken {
		free = rolls // to take entries back replaces no running Machine
	}
	if err != nil || rolls || a.kind != plan.KindControlPlane || !a.changes(goal) {
		return goal, err
	}
	running, err := source.ControlPlanes{Cached: a.Cached, Live: a.Live}.Begun(ctx, a.view.Namespace, a.view.Name)
	if err != nil {
		return outcome{}, err
	}
	if running && !free || !running && !a.created && !plan.AtRest(a.paused()) { // the controller pauses it first
		return a.keep(""), nil
	}
	return goal, nil
}

// changes reports whether goal makes the object another one than the stored.
func (a *admission) changes(goal outcome) bool {
	if goal.hold || goal.release && plan.IsHeld(a.asked.GetAnnotations()) {
		return true
	}
	kept := patch.Apply(a.sent, a.keep("").Edits)
	return len(patch.Keep(patch.Apply(a.sent, goal.Edits), kept)) > 0
}

// goal is what becomes of the object if no running Machine stands against it.
func (a *admission) goal(ctx context.Context, object plan.Object, options source.Options, rolls bool) (outcome, error) {
	if !a.view.Enabled || object.Override() == contract.SecretNone {
		if !a.view.Enabled && plan.IsOthers(a.before, a.view.Name, a.generatedFor(ctx, a.namespace, a.before)) {
			return a.keep(""), nil // a shared template that another Cluster had patched
		}
		return a.takeOut(ctx)
	}
	var resolution source.Resolution
	if options.Delivery == contract.DeliveryInline {
		allowed, err := a.mayHaveValues(ctx, object.Pools)
		if err != nil || !allowed {
			return a.withoutValues(ctx, object, err)
		}
		resolver := source.Resolver{Secrets: a.Secrets, Default: a.Installation, Object: object.Overrider()}
		resolution, err = resolver.Resolve(ctx, a.view, options, object.Override())
		if err != nil {
			return a.unusable(err)
		}
	}
	secretName := object.GeneratedSecret(a.view.Name)
	if options.Delivery == contract.DeliveryReference {
		key := types.NamespacedName{Namespace: a.view.Namespace, Name: secretName}
		why, err := source.GeneratedSecrets{Cached: a.Cached, Live: a.Live, Absences: a.Absences}.Taken(ctx, key, a.view.Name)
		if err != nil {
			return outcome{}, err
		}
		if why != "" {
			return a.takeBack(ctx, secretName, why)
		}
	}
	if wait, finding, err := a.infrastructure(ctx, object); err != nil || wait {
		return a.keep(finding), err
	}
	before := a.before
	if rolls {
		before = patch.Spec{} // nothing to keep the version of
	}
	recipe, err := plan.RecipeOf(a.stored.GetAnnotations(), before, options, resolution, secretName)
	if err != nil {
		return a.refused(err), nil
	}
	if options.Delivery == contract.DeliveryInline && !resolution.Complete {
		if _, err := patch.Ensure(a.spec, recipe); err != nil && !options.Adopt {
			return a.refused(err), nil
		}
		kept := a.keep("")
		kept.hold = a.kind != plan.KindTemplate
		return kept, nil
	}
	adopting := a.write // of which nothing is left if it ends in a conflict
	if options.Adopt {
		if adopting, err = a.adopt(ctx, recipe); err != nil {
			return outcome{}, err
		}
	}
	var originals map[string]json.RawMessage
	if patch.GivesUp(adopting.before, recipe) || patch.GivesUp(adopting.spec, recipe) {
		var complete bool
		if originals, complete, err = a.answerable(ctx); err != nil || !complete {
			return a.keep(""), err
		}
	}
	brought, err := plan.Bring(adopting.before, adopting.spec, recipe, originals)
	if err != nil {
		return a.refused(err), nil
	}
	result := adopting.outcomeOf(brought)
	result.version, result.release = recipe.Version, true
	for _, warning := range brought.Warnings {
		result.warnings = append(result.warnings, contract.Name+": "+a.String()+": "+warning)
	}
	return result, nil
}

// takeBack takes our entries out of an object that refers to a Secret of somebody else, and keeps any other as it is.
func (a *admission) takeBack(ctx context.Context, secret, why string) (outcome, error) {
	kept := a.keep(why)
	kept.taken = true
	if !slices.Contains(patch.References(patch.Apply(a.sent, kept.Edits)), secret) {
		return kept, nil
	}
	out, err := a.takeOut(ctx)
	out.taken, out.warnings = true, kept.warnings
	return out, err
}

// withoutValues keeps an object as it is that values of Inline delivery must not be answered for. A KubeadmConfig that is
// created is held back until the controller has written them. err is passed on.
func (a *admission) withoutValues(ctx context.Context, object plan.Object, err error) (outcome, error) {
	if err != nil || a.kind != plan.KindConfig || !a.created {
		return a.keep(""), err
	}
	if wait, finding, err := a.infrastructure(ctx, object); err != nil || wait {
		return a.keep(finding), err
	}
	kept := a.keep("")
	kept.hold = true
	return kept, nil
}

// infrastructure reports whether an object that is not patched yet has to wait: for a machine template, which tells Windows
// nodes and without which there are no Machines either, or for ever, because it is for Windows.
func (a *admission) infrastructure(ctx context.Context, object plan.Object) (wait bool, finding string, err error) {
	if patch.IsPatched(a.before) {
		return false, "", nil
	}
	for _, pool := range object.Pools {
		made := hasOwner(a.write, "Machine") || hasOwner(a.write, "MachineSet")
		template, err := a.Infrastructure.Template(ctx, a.namespace, pool.Infrastructure, true)
		switch {
		case err != nil:
			return false, "", err
		case template.Windows != "":
			return true, plan.Windows(object.Name, template.Windows).Message, nil
		case !template.Exists && !made:
			return true, "", nil
		}
	}
	return false, "", nil
}

// refused keeps the object as it is when its recipe cannot be made, or stands in the user's way.
func (a *admission) refused(err error) outcome { return a.keep(a.String() + ": " + err.Error()) }

// unusable keeps the object as it is when there are no settings to write into it.
func (a *admission) unusable(err error) (outcome, error) {
	if invalid, ok := errors.AsType[*source.InvalidError](err); ok {
		return a.keep(invalid.Message), nil
	}
	if missing, ok := errors.AsType[*source.NotFoundError](err); ok {
		return a.keep(missing.Message), nil
	}
	return outcome{}, err
}

// answer turns an outcome into a JSON patch.
func (a *admission) answer(ctx context.Context, o outcome) answer {
	want := map[string]string{}
	record := a.stored.GetAnnotations()[contract.AnnotationOutputVersion]
	if o.version != 0 {
		record = strconv.Itoa(o.version)
	}
	patched := patch.IsPatched(patch.Apply(a.sent, o.Edits))
	switch {
	case !patched:
		want[contract.AnnotationOutputVersion] = ""
	case record != "":
		want[contract.AnnotationOutputVersion] = record
	}
	held := plan.IsHeld(a.asked.GetAnnotations())
	switch {
	case o.hold:
		want[clusterv1.PausedAnnotation] = contract.PausedForEndpoint
	case o.release && held:
		want[clusterv1.PausedAnnotation] = ""
	case !o.release && plan.IsHeld(a.stored.GetAnnotations()) && !plan.IsPausedByUser(a.asked.GetAnnotations()):
		want[clusterv1.PausedAnnotation] = a.stored.GetAnnotations()[clusterv1.PausedAnnotation]
	}
	operations := append(patch.Operations(a.at, a.sent, o.Edits), plan.AnnotationOperations(a.asked.GetAnnotations(), want)...)
	if len(operations) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Patching at admission", "edits", len(o.Edits), "hold", o.hold)
	} else if len(o.warnings) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Admitting unchanged", "warnings", len(o.warnings))
	}
	return answer{operations: operations, warnings: o.warnings}
}
