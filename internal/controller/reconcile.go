package controller

import (
	"context"
	"errors"
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
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	proxysource "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/topology"
)

// Reconcile brings one Cluster to what its label, annotations and proxy Secret ask for.
func (c *Controller) Reconcile(ctx context.Context, cluster *clusterv1.Cluster) (ctrl.Result, error) {
	view := proxysource.ClusterOf(cluster)
	reported := meta.FindStatusCondition(cluster.Status.Conditions, contract.ConditionProxyConfigured) != nil
	_, held := topology.HoldOf(cluster.Annotations)
	if view.Deleted {
		c.news.forget(cluster.UID)
		return ctrl.Result{}, c.releaseDeleted(ctx, view)
	}
	if view.Paused {
		return ctrl.Result{}, nil
	}
	if view.Unclear != nil {
		var found findings
		found.addInvalid(view.Unclear)
		return ctrl.Result{}, client.IgnoreNotFound(c.report(ctx, cluster, found, ""))
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
	if invalid, ok := errors.AsType[*proxysource.InvalidError](err); ok {
		var found findings
		found.addInvalid(invalid)
		return ctrl.Result{}, client.IgnoreNotFound(c.report(ctx, cluster, found, ""))
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
	view    proxysource.Cluster
	found   findings
	// warnings are about the settings that the pass has resolved.
	warnings []noproxy.Warning
	// needed are the names of generated Secrets that a bootstrap object refers to.
	needed map[string]bool
	// ensured are the generated Secrets that this pass has seen to.
	ensured map[string]bool
	// free are the names of generated Secrets that this pass has checked; false is that somebody else has the name.
	free map[string]bool
	// missing are the proxy Secrets that do not exist, by the override that names them.
	missing map[string]bool
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
		r.found.addInvalid(err)
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
		if err := r.configureObject(ctx, &objects[i], options, main); err != nil {
			return "", err
		}
	}
	if err := r.letGo(ctx, objects); err != nil {
		return "", err
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
	r.reportHeld(objects)
	if err := r.reportAdopted(ctx, objects, options); err != nil {
		return "", err
	}
	r.reportWarnings()
	r.reportNames(objects)
	return r.summary(objects, len(found) > 0), nil
}

// resolve finds the settings of the Cluster or, if override is not "", of the pool that names it. It returns nil when a
// finding explains why there are none.
func (r *reconciliation) resolve(ctx context.Context, options proxysource.Options, override, pool string) (*proxysource.Resolution, error) {
	resolver := proxysource.Resolver{
		Secrets: proxysource.ClusterSecrets{Watched: r.ProxySecrets, Live: r.Live, Absences: r.Absences},
		Default: r.Installation,
		Now:     r.Now,
		Object:  pool,
	}
	resolution, err := resolver.Resolve(ctx, r.view, options, override)
	var (
		invalid *proxysource.InvalidError
		missing *proxysource.NotFoundError
	)
	switch {
	case errors.As(err, &invalid):
		r.found.addInvalid(invalid)
	case errors.As(err, &missing):
		r.found.add(contract.ReasonSettingsNotFound, "%s", missing.Message)
		if r.missing == nil {
			r.missing = map[string]bool{}
		}
		r.missing[override] = true
	case err != nil:
		return nil, err
	default:
		r.reportSecret(resolution)
		return &resolution, nil
	}
	return nil, nil //nolint:nilnil // the finding says why
}

// reportSecret tells what an operator should know about the settings in use.
func (r *reconciliation) reportSecret(resolution proxysource.Resolution) {
	if !resolution.Complete {
		r.found.add(contract.ReasonWaitingForEndpoint,
			"spec.controlPlaneEndpoint of Cluster %s/%s is not set yet; bootstrap data waits for it, because NO_PROXY must hold it",
			r.view.Namespace, r.view.Name)
	}
	r.warnings = append(r.warnings, resolution.Warnings...)
	if !resolution.Secret.Watched {
		r.found.note("Secret %s has no label %s, so its changes are noticed only at the next resync", resolution.Secret.Name, contract.LabelProxySecret)
	}
}

// reportWarnings tells what works differently from what it looks like in the settings in use.
func (r *reconciliation) reportWarnings() {
	for _, warning := range proxysource.WarningNotes(r.warnings) {
		r.found.note("%s", warning)
	}
}

// reportNames tells of labels and annotations that nothing reads.
func (r *reconciliation) reportNames(objects []bootstrapObject) {
	for _, warning := range topology.CheckNames(r.cluster.Labels, topology.SourceOf(r.cluster)) {
		r.found.note("%s", warning)
	}
	for _, o := range objects {
		for _, pool := range o.pools {
			if pool.TopologyName != "" {
				continue // it has those that the Cluster has for it
			}
			for _, warning := range proxysource.CheckPool(pool.Annotations) {
				warning.Where = pool.String() + " " + warning.Where
				r.found.note("%s", warning)
			}
		}
	}
}

// configureObject brings one bootstrap object to its recipe.
func (r *reconciliation) configureObject(ctx context.Context, o *bootstrapObject, options proxysource.Options, main *proxysource.Resolution) error {
	if r.topology != nil && plan.IsTopologyOwned(o.object.GetLabels()) {
		if isOfMachine(o.object) {
			if name := r.takenReference(*o); name != "" {
				return r.takeBack(ctx, o, name, options)
			}
			return r.settleCopy(ctx, o, options)
		}
		r.inspect(o, options)
		return nil
	}
	view, err := r.planned(ctx, *o)
	if err != nil {
		return err
	}
	if left := plan.LeaveAlone(view); left != nil {
		r.found.add(left.Reason, "%s", left.Message)
		r.keepReferences(*o)
		return nil
	}
	if !o.object.GetDeletionTimestamp().IsZero() && plan.IsHeld(view.Annotations) {
		r.keepReferences(*o)
		return r.annotate(ctx, o.object, map[string]string{clusterv1.PausedAnnotation: ""})
	}
	override := view.Override()
	if override == contract.SecretNone {
		o.recipe = &patch.Recipe{}
		edits, err := r.take(ctx, *o)
		if err != nil {
			return err
		}
		return r.write(ctx, o, edits, 0, options)
	}
	resolution, secretName := main, view.GeneratedSecret(r.view.Name)
	if override != "" {
		if resolution, err = r.resolve(ctx, options, override, view.Overrider()); err != nil {
			return err
		}
	}
	reference := options.Delivery == contract.DeliveryReference
	waits := reference && r.missing[override] // for the generated Secret, which bootstrap waits for
	if resolution == nil && !waits && (!reference || !refersTo(o.spec, secretName)) {
		r.keepReferences(*o)
		return nil
	}
	if reference {
		free, err := r.isFree(ctx, secretName)
		if err != nil {
			return err
		}
		if !free {
			return r.takeBack(ctx, o, secretName, options)
		}
	}
	if resolution == nil {
		if !waits {
			r.keepReferences(*o)
			return nil
		}
		resolution = &proxysource.Resolution{} // the entries are constants
	} else {
		o.proxy = resolution.Secret.Name.String()
	}
	brought, recipe, refused, err := r.bring(ctx, *o, options, *resolution, secretName)
	if err != nil {
		return err
	}
	if conflict, ok := errors.AsType[*patch.ConflictError](refused); ok {
		var adopted bool
		if brought, adopted, err = r.adopt(ctx, *o, recipe, options); err != nil {
			return err
		}
		if !adopted {
			r.keepReferences(*o)
			r.reportConflict(*o, conflict, options)
			return r.release(ctx, *o)
		}
		refused = nil
	}
	if refused != nil {
		r.keepReferences(*o)
		r.found.add(contract.ReasonInvalidSettings, "%s: %s", o, refused)
		return nil
	}
	for _, warning := range brought.Warnings {
		r.found.note("%s: %s", o, warning)
	}
	if ready, err := r.readyForPatch(ctx, *o); err != nil || !ready {
		o.proxy = "" // it is to have none, or a finding says what it waits for
		return err
	}
	if options.Delivery == contract.DeliveryInline && !resolution.Complete {
		r.keepReferences(*o)
		return r.hold(ctx, o) // the finding about the endpoint says why
	}
	if reference {
		if err := r.ensureSecret(ctx, secretName, *resolution); err != nil {
			return err
		}
		if !r.free[secretName] { // since it was checked
			return r.takeBack(ctx, o, secretName, options)
		}
	}
	o.recipe, o.generated = &recipe, secretName
	if err := r.write(ctx, o, brought.Edits, recipe.Version, options); err != nil || !reference {
		return err
	}
	return r.followReferences(ctx, *o, *resolution)
}

// readyForPatch reports whether nothing about the pools of an object that is not patched yet speaks against it: Windows
// nodes by their machine template, or a template that does not exist yet.
func (r *reconciliation) readyForPatch(ctx context.Context, o bootstrapObject) (bool, error) {
	if patch.IsPatched(o.spec) {
		return true, nil
	}
	for _, pool := range o.pools {
		made := isOfMachine(o.object)
		template, err := r.Infrastructure.Template(ctx, r.view.Namespace, pool.Infrastructure, made)
		switch {
		case err != nil:
			return false, err
		case template.Windows != "":
			r.found.note("%s", plan.Windows(o.String(), template.Windows).Message)
			return false, r.release(ctx, o)
		case !template.Exists && !made: // what a Machine is made of existed, if only for a moment
			r.found.add(contract.ReasonWaitingForObjects, "%s %s/%s of %s does not exist yet; it tells whether nodes run Windows",
				pool.Infrastructure.Kind, r.view.Namespace, pool.Infrastructure.Name, pool)
			r.lookAgain(template.Again)
			return false, nil
		}
	}
	return true, nil
}

// lookAgain brings the Cluster back after a time, or earlier.
func (r *reconciliation) lookAgain(after time.Duration) {
	if r.later == 0 || after < r.later {
		r.later = after
	}
}

// configureLate patches what missed admission. What is to be said about it has been said about its template.
func (r *reconciliation) configureLate(ctx context.Context, options proxysource.Options, main *proxysource.Resolution) error {
	objects, err := r.late(ctx)
	if err != nil {
		return err
	}
	said := r.found
	for i := range objects {
		if err := r.configureObject(ctx, &objects[i], options, main); err != nil {
			return err
		}
	}
	r.found = said
	return nil
}

// bring returns the edits that o needs and the recipe they come from, made by the output version that o has, or by the
// newest if the user replaces the Machines anyway. refused is why there are none, for the user.
func (r *reconciliation) bring(ctx context.Context, o bootstrapObject, options proxysource.Options, resolution proxysource.Resolution, secretName string) (
	brought patch.Plan, recipe patch.Recipe, refused, err error,
) {
	before := o.spec
	if r.rollsNow(o) {
		before = patch.Spec{} // nothing to keep the version of
	}
	if recipe, refused = plan.RecipeOf(o.object.GetAnnotations(), before, options, resolution, secretName); refused != nil {
		return brought, recipe, refused, nil
	}
	originals, err := r.originalsOf(ctx, o, recipe)
	if err != nil {
		return brought, recipe, nil, err
	}
	brought, refused = patch.Bring(o.spec, recipe, originals)
	return brought, recipe, refused, nil
}

// rollsNow reports whether the time has come at which the user has all Machines of a control plane replaced, and none
// has been yet.
func (r *reconciliation) rollsNow(o bootstrapObject) bool {
	return o.running && !o.rollout.IsZero() && !o.rollout.After(r.Now())
}

// planned is the view of o on which it is decided.
func (r *reconciliation) planned(ctx context.Context, o bootstrapObject) (plan.Object, error) {
	foreign, err := r.foreignUser(ctx, r.view, o)
	if err != nil {
		return plan.Object{}, err
	}
	return plan.Object{
		Name: o.String(), Labels: o.object.GetLabels(), Annotations: o.object.GetAnnotations(),
		Spec: o.spec, Pools: o.pools, Foreign: foreign,
	}, nil
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
	options, err := proxysource.ParseOptions(r.view.Annotations)
	if err != nil {
		options = proxysource.Options{Rollout: contract.RolloutOnNextRollout} // whatever it says, removal goes on
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
		if err := r.restoreObject(ctx, &objects[i], options); err != nil {
			return err
		}
	}
	for i := range late {
		if err := r.restoreObject(ctx, &late[i], options); err != nil {
			return err
		}
	}
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

// restoreObject removes our entries from o.
func (r *reconciliation) restoreObject(ctx context.Context, o *bootstrapObject, options proxysource.Options) error {
	if plan.IsTopologyOwned(o.object.GetLabels()) {
		switch {
		case !r.view.Topology:
		case isOfMachine(o.object):
			if err := r.settleCopy(ctx, o, options); err != nil {
				return err
			}
			if plan.IsHeld(o.object.GetAnnotations()) {
				r.found.add(contract.ReasonRemovalWaiting, "%s is held back until the topology controller gives its pool another template", o)
			}
		default:
			r.restoreOwned(*o)
		}
		return nil
	}
	edits, err := r.take(ctx, *o)
	if err != nil {
		return err
	}
	if len(edits) == 0 && !plan.IsHeld(o.object.GetAnnotations()) {
		o.recipe = &patch.Recipe{}
		return nil
	}
	if plan.IsPausedByUser(o.object.GetAnnotations()) {
		r.found.add(contract.ReasonPaused, "%s is paused and keeps the proxy until it is not", o)
		r.keepReferences(*o)
		return nil
	}
	if labels, err := r.generatedFor(ctx, o.spec); err != nil || plan.IsOthers(o.spec, r.view.Name, labels) {
		return err // a shared template that another Cluster had patched
	}
	o.recipe = &patch.Recipe{}
	return r.write(ctx, o, edits, 0, options)
}
