package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// Reconcile brings one Cluster to what its label, annotations and proxy Secret ask for.
func (c *Controller) Reconcile(ctx context.Context, cluster *clusterv1.Cluster) (ctrl.Result, error) {
	view := intent.ClusterOf(cluster)
	reported := meta.FindStatusCondition(cluster.Status.Conditions, contract.ConditionProxyConfigured) != nil
	_, held := intent.FreezeOf(cluster.Annotations)
	if view.Deleted {
		c.news.forget(cluster.UID)
		return ctrl.Result{}, c.releaseDeleted(ctx, view)
	}
	if view.Paused {
		return ctrl.Result{}, nil
	}
	if view.Unclear != nil {
		return ctrl.Result{}, client.IgnoreNotFound(c.report(ctx, cluster, findings(finding.Of(view.Unclear)), ""))
	}
	if !view.Enabled && !reported && !held {
		if left, err := c.leftOver(ctx, view); err != nil || !left {
			return ctrl.Result{}, err
		}
	}
	r := &reconciliation{Controller: c, cluster: cluster, view: view}
	var err error
	if view.Enabled {
		err = r.enable(ctx)
	} else {
		err = r.disable(ctx)
	}
	if apierrors.IsConflict(err) {
		// Somebody wrote in between. The cache brings their write, and this Cluster back into the queue.
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the cache after a write conflict")
		return ctrl.Result{}, nil
	}
	if found := finding.Of(err); len(found) > 0 {
		return ctrl.Result{}, client.IgnoreNotFound(c.report(ctx, cluster, findings(found), ""))
	}
	if err != nil {
		var internal findings
		internal.add(contract.ReasonInternalError, "Please check controller logs for errors")
		return ctrl.Result{}, errors.Join(err, client.IgnoreNotFound(c.report(ctx, cluster, internal, "")))
	}
	return ctrl.Result{RequeueAfter: r.later}, nil
}

// reconciliation is one pass over one Cluster.
type reconciliation struct {
	*Controller

	cluster *clusterv1.Cluster
	view    intent.Cluster
	found   findings
	// warnings are about the settings that the pass has resolved.
	warnings []finding.Finding
	// needed are the names of generated Secrets that a bootstrap object refers to.
	needed map[string]bool
	// ensured are the generated Secrets that this pass has seen to.
	ensured map[string]bool
	// taken says why nothing may refer to a generated Secret of a name, for those that this pass has checked; "" is that the
	// name is free.
	taken map[string]string
	// adopted is the Cluster's generated Secret if this pass has written originals into it, else nil.
	adopted *corev1.Secret
	// listed are the KubeadmConfigs of the Cluster, nil until they are asked for.
	listed *bootstrapv1.KubeadmConfigList
	// topology is what the pass knows about the topology of an enabled Cluster, nil if it has none.
	topology *topologyPass
	// announced is that the pass has left a condition before its first patch.
	announced bool
	// later is after which time the Cluster has to be looked at again, or zero.
	later time.Duration
}

// enable configures the Cluster and reports.
func (r *reconciliation) enable(ctx context.Context) error {
	r.needed = map[string]bool{}
	configured, err := r.configure(ctx)
	if err != nil {
		return err
	}
	return r.report(ctx, r.cluster, r.found, configured)
}

// configure carries out what can be carried out, collects findings about the rest, and returns the message for a
// Cluster without any.
func (r *reconciliation) configure(ctx context.Context) (string, error) {
	options, err := r.options()
	if err != nil {
		r.found = append(r.found, finding.Of(err)...)
		if !r.view.Topology { // whose variable may name another Secret
			_, err = r.resolve(ctx, options, "", "")
			return "", err
		}
		return "", nil
	}
	objects, found, err := r.collect(ctx, r.view)
	if err != nil {
		return "", err
	}
	main, err := r.resolve(ctx, options, "", "")
	if err != nil {
		return "", err
	}
	r.found = append(r.found, found...)
	if err := r.topologySecrets(ctx, objects, options, main); err != nil {
		return "", err
	}
	for i := range objects {
		if err := r.settle(ctx, &objects[i], r.want(options), main); err != nil {
			return "", err
		}
	}
	if err := r.configureLate(ctx, options, main); err != nil {
		return "", err
	}
	if err := r.followUp(ctx, objects, options, true); err != nil {
		return "", err
	}
	if err := r.tidy(ctx, objects, options); err != nil {
		return "", err
	}
	if err := r.settleTopology(ctx, objects, found); err != nil {
		return "", err
	}
	if err := r.cleanSecrets(ctx, objects); err != nil {
		return "", err
	}
	r.reportPaused(objects)
	if err := r.reportAdopted(ctx, objects, options); err != nil {
		return "", err
	}
	r.reportWarnings()
	r.reportNames(objects)
	return r.summary(objects, len(found) > 0), nil
}

// resolve finds the settings of the Cluster or, if override is not "", of the pool that names it. It returns nil when a
// finding explains why there are none.
func (r *reconciliation) resolve(ctx context.Context, options intent.Options, override, pool string) (*resolve.Resolution, error) {
	resolver := resolve.Resolver{
		Secrets: lookup.Secrets{Watched: r.ProxySecrets, Live: r.Live, Absences: r.Absences},
		Default: r.Installation,
		Now:     r.Now,
		Object:  pool,
	}
	resolution, err := resolver.Resolve(ctx, r.view, options, override)
	if err == nil {
		r.reportSecret(resolution)
		return &resolution, nil
	}
	found := finding.Of(err)
	if len(found) == 0 {
		return nil, err
	}
	r.found = append(r.found, found...)
	return nil, nil //nolint:nilnil // the finding says why
}

// reportSecret tells what an operator should know about the settings in use.
func (r *reconciliation) reportSecret(resolution resolve.Resolution) {
	if !resolution.Complete {
		r.found.add(contract.ReasonWaitingForEndpoint,
			"spec.controlPlaneEndpoint of Cluster %s/%s is not set yet; bootstrap data waits for it, because NO_PROXY must contain it",
			r.view.Namespace, r.view.Name)
	}
	r.warnings = append(r.warnings, resolution.Warnings...)
	if note := resolution.Note(); note != "" {
		r.found.note("%s", note)
	}
	if !resolution.Secret.Watched {
		r.found.note("Secret %s has no label %s, so its changes are noticed only at the next resync", resolution.Secret.Name, contract.LabelProxySecret)
	}
}

// reportWarnings tells what works differently from what it looks like in the settings in use.
func (r *reconciliation) reportWarnings() {
	r.found = append(r.found, finding.Notes(resolve.Mendable(r.warnings))...)
}

// reportNames tells of labels and annotations that nothing reads.
func (r *reconciliation) reportNames(objects []bootstrapObject) {
	r.found = append(r.found, intent.CheckNames(r.cluster.Labels, intent.TopologySourceOf(r.cluster))...)
	for _, o := range objects {
		for _, pool := range o.pools {
			if pool.Topology {
				continue // it has those that the Cluster has for it
			}
			for _, warning := range intent.CheckPool(pool.Annotations) {
				warning.Place = warning.Place.Of(pool.String())
				r.found = append(r.found, warning)
			}
		}
	}
}

// want is what the Cluster asks for.
func (r *reconciliation) want(options intent.Options) plan.Want {
	return plan.Want{Cluster: r.view.Name, Enabled: r.view.Enabled, Options: options, Admission: r.Admission}
}

// settle makes one bootstrap object what want asks for. main are the settings of the Cluster, nil if they are not
// usable or not needed.
func (r *reconciliation) settle(ctx context.Context, o *bootstrapObject, want plan.Want, main *resolve.Resolution) error {
	if r.isBehind(o.object) {
		return stale(o.kind, o.object)
	}
	decide := plan.Decide
	if plan.IsTopologyOwned(o.object.GetLabels()) && (r.view.Topology || !r.view.Enabled) {
		switch {
		case !r.view.Topology:
			return nil
		case isOfMachine(o.object):
			from, err := r.copiedFrom(ctx, *o, want.Options)
			if err != nil {
				return err
			}
			decide = func(o plan.Object, want plan.Want) plan.Decision { return plan.DecideCopy(o, want, from) }
		case r.view.Enabled:
			r.inspect(o, want.Options)
			return nil
		default:
			r.restoreOwned(*o)
			return nil
		}
	}
	object, err := r.planned(ctx, *o, want.Enabled)
	if err != nil {
		return err
	}
	for {
		decision := decide(object, want)
		if decision.Ask != plan.NoFact {
			if err := r.answer(ctx, *o, &object, decision, want.Options, main); err != nil {
				return err
			}
			continue
		}
		switch why, err := r.carryOut(ctx, o, decision, object.Facts.Values); {
		case err != nil:
			return err
		case why == "":
			return nil
		default: // somebody else has the name of the generated Secret since it was asked about
			object.Facts.Taken[decision.Secret] = why
		}
	}
}

// planned is what is known of o without asking.
func (r *reconciliation) planned(ctx context.Context, o bootstrapObject, enabled bool) (plan.Object, error) {
	view := plan.Object{
		Kind: o.kind, Name: o.String(), Labels: o.object.GetLabels(), Annotations: o.object.GetAnnotations(),
		Spec: o.spec, Pools: o.pools, OfMachine: isOfMachine(o.object),
		Running: o.running, Busy: o.busy, Rolls: r.rollsNow(o), Deleted: !o.object.GetDeletionTimestamp().IsZero(),
		Facts: plan.Facts{Taken: map[string]string{}},
	}
	for _, name := range patch.References(o.spec) {
		if why := r.taken[name]; why != "" {
			view.Facts.Taken[name] = why
		}
	}
	if !enabled {
		return view, nil
	}
	var err error
	view.Foreign, err = r.foreignUser(ctx, r.view, o)
	return view, err
}

// answer finds a fact that a decision about o asks for.
func (r *reconciliation) answer(
	ctx context.Context, o bootstrapObject, view *plan.Object, asks plan.Decision, options intent.Options, main *resolve.Resolution,
) error {
	var err error
	facts := &view.Facts
	switch asks.Ask {
	case plan.FactValues:
		resolution, override := main, view.Override()
		if override != "" {
			resolution, err = r.resolve(ctx, options, override, view.Overrider())
		}
		facts.Values = &plan.Values{Resolution: resolution}
	case plan.FactTaken:
		facts.Taken[asks.Name], err = r.whyTaken(ctx, asks.Name)
	case plan.FactInfrastructure:
		facts.Infrastructure, err = r.infrastructure(ctx, o)
	case plan.FactBegun:
		var begun bool
		begun, err = lookup.ControlPlanes{Cached: r.Client, Live: r.Live}.Begun(ctx, r.view.Namespace, r.view.Name)
		facts.Begun = &begun
	case plan.FactOriginals:
		var files map[string]json.RawMessage
		files, err = r.originalsOf(ctx, o)
		facts.Originals = &plan.Originals{Files: files}
	case plan.FactOwners:
		facts.Owners, err = r.generatedFor(ctx, o.spec)
	default:
		err = fmt.Errorf("deciding about %s: no answer to question %d", o, asks.Ask)
	}
	return err
}

// infrastructure asks for the machine templates of the pools of o.
func (r *reconciliation) infrastructure(ctx context.Context, o bootstrapObject) (*plan.Infrastructure, error) {
	for _, pool := range o.pools {
		template, err := r.Infrastructure.Template(ctx, r.view.Namespace, pool.Infrastructure, isOfMachine(o.object))
		switch {
		case err != nil:
			return nil, err
		case template.Windows != "":
			return &plan.Infrastructure{Windows: template.Windows}, nil
		case !template.Exists:
			if !isOfMachine(o.object) {
				r.lookAgain(template.Again)
			}
			return &plan.Infrastructure{Missing: fmt.Sprintf("%s %s/%s of %s", pool.Infrastructure.Kind, r.view.Namespace, pool.Infrastructure.Name, pool)}, nil
		}
	}
	return &plan.Infrastructure{}, nil
}

// carryOut does what was decided about o with the values that it was decided on, nil for none. It returns why nothing may refer
// to the generated Secret, if that is found out only when the Secret is written: then all is to be decided again.
func (r *reconciliation) carryOut(ctx context.Context, o *bootstrapObject, decision plan.Decision, values *plan.Values) (taken string, err error) {
	if len(decision.Adopted) > 0 && !isOfMachine(o.object) { // a Machine's own KubeadmConfig is deleted with it
		if err := r.keepOriginals(ctx, *o, decision.Adopted, decision.Waits); err != nil {
			return "", err
		}
	}
	resolution := resolve.Resolution{}
	if values != nil && values.Resolution != nil {
		resolution = *values.Resolution
	}
	if decision.Secret != "" {
		if err := r.ensureSecret(ctx, decision.Secret, resolution); err != nil || r.taken[decision.Secret] != "" {
			return r.taken[decision.Secret], err
		}
	}
	r.found = append(r.found, decision.Report()...)
	o.recipe, o.generated = decision.Recipe, decision.Secret
	if decision.Proxied {
		o.proxy = resolution.Secret.Name.String()
	}
	if decision.Waits {
		r.waitForRollout(*o)
	}
	if err := r.write(ctx, o, decision); err != nil || decision.Secret == "" {
		return "", err
	}
	return "", r.followReferences(ctx, *o, resolution)
}

// lookAgain brings the Cluster back after a time, or earlier.
func (r *reconciliation) lookAgain(after time.Duration) {
	if r.later == 0 || after < r.later {
		r.later = after
	}
}

// configureLate patches what missed admission. What is to be said about it has been said about its template.
func (r *reconciliation) configureLate(ctx context.Context, options intent.Options, main *resolve.Resolution) error {
	objects, err := r.late(ctx)
	if err != nil {
		return err
	}
	said := r.found
	for i := range objects {
		if err := r.settle(ctx, &objects[i], r.want(options), main); err != nil {
			return err
		}
	}
	r.found = said
	return nil
}

// rollsNow reports whether the time has come at which the user has all Machines of a control plane replaced, and none
// has been yet.
func (r *reconciliation) rollsNow(o bootstrapObject) bool {
	return o.running && !o.rollout.IsZero() && !o.rollout.After(r.Now())
}

// summary is the message of a configured Cluster. One that is not, although nothing was found, gets findings that say so.
// unsupported reports whether something was left alone that cannot be patched.
func (r *reconciliation) summary(objects []bootstrapObject, unsupported bool) string {
	counted := make([]finding.Object, len(objects))
	for i, o := range objects {
		counted[i] = finding.Object{Name: o.String(), Secret: o.proxy, Carries: patch.IsPatched(o.spec)}
	}
	if !r.found.explained() {
		r.found = append(r.found, finding.Unconfigured(r.view.Namespace+"/"+r.view.Name, counted, unsupported)...)
	}
	return finding.Summary(counted)
}

// disable takes everything out again. The condition goes last.
func (r *reconciliation) disable(ctx context.Context) error {
	r.needed = map[string]bool{}
	options, err := intent.ParseOptions(r.view.Annotations)
	if err != nil {
		options = intent.Options{Rollout: contract.RolloutOnNextRollout} // whatever it says, removal goes on
	}
	objects, found, err := r.collect(ctx, r.view)
	if err != nil {
		return err
	}
	late, err := r.late(ctx)
	if err != nil {
		return err
	}
	for i := range objects {
		if err := r.settle(ctx, &objects[i], r.want(options), nil); err != nil {
			return err
		}
	}
	for i := range late {
		if err := r.settle(ctx, &late[i], r.want(options), nil); err != nil {
			return err
		}
	}
	r.reportCopies(late)
	if err := r.followUp(ctx, objects, options, false); err != nil {
		return err
	}
	if err := r.tidy(ctx, objects, options); err != nil {
		return err
	}
	if err := r.settleTopology(ctx, objects, found); err != nil {
		return err
	}
	if err := r.cleanSecrets(ctx, objects); err != nil {
		return err
	}
	if r.found.explained() {
		return r.report(ctx, r.cluster, r.found, "")
	}
	return r.removeCondition(ctx, r.cluster)
}
