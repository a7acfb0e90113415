package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/workload"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
)

// pass is one pass over one Cluster.
type pass struct {
	*Controller

	cluster *clusterv1.Cluster
	view    intent.Cluster
	options intent.Options
	configs *reconcile.Configs
	secrets *reconcile.Secrets
	// topology is nil for a Cluster without one.
	topology *reconcile.Topology
	// current reports that the cached Cluster asks for the same as that of the API server.
	current bool
}

func (c *Controller) newPass(cluster *clusterv1.Cluster, view intent.Cluster) *pass {
	p := &pass{Controller: c, cluster: cluster, view: view, configs: c.reader.Configs(view)}
	p.secrets = reconcile.Store{Writer: c.writer, Reader: c.reader, Now: c.Now}.Of(cluster, view, p.configs)
	if view.Topology {
		p.topology = &reconcile.Topology{
			Cluster: cluster, View: view, Reader: c.reader, Writer: c.writer,
			Secrets: p.secrets, Now: c.Now,
		}
	}
	return p
}

// isIdle reports whether there is nothing to take out of a Cluster that is not enabled. It has no condition, and none
// of what may be left without one: by a process that was killed, by a webhook that patched objects before the first
// pass saw them, or by Cluster API, which copies templates as its cache shows them.
func (p *pass) isIdle(ctx context.Context) (bool, error) {
	if _, frozen := intent.FreezeOf(p.cluster.Annotations); frozen || report.HasCondition(p.cluster) ||
		intent.Restores(p.cluster.Labels, p.cluster.Annotations) {
		return false, nil
	}
	written, rendered, err := p.secrets.Makers(ctx)
	if err != nil || written {
		return false, err
	}
	isRendered := func(secret string) bool { return slices.Contains(rendered, secret) }
	patched, err := p.reader.PatchedFor(ctx, p.view)
	if err != nil {
		return false, err
	}
	objects, _, err := p.reader.Collect(ctx, p.view, patched)
	if err != nil {
		return false, err
	}
	late, err := p.configs.Late(ctx)
	return !slices.ContainsFunc(slices.Concat(objects, late, strays(objects, patched)), func(o reconcile.Object) bool {
		return plan.IsPausedByUs(o.GetAnnotations()) ||
			patch.IsPatched(o.Spec) && !o.IsTopologyOwned() && !slices.ContainsFunc(patch.References(o.Spec), isRendered)
	}), err
}

// readOptions reads the settings in annotations and, with a topology, the variable. Its errors are for the user.
func (p *pass) readOptions() (err error) {
	if p.topology == nil || !p.view.Enabled {
		p.options, err = intent.ParseOptions(p.view.Annotations)
		return err
	}
	if p.topology.Asks, err = intent.SettingsOf(p.cluster); err != nil {
		return err
	}
	if p.topology.Version, err = intent.OutputVersion(p.cluster.Annotations); err != nil {
		return err
	}
	p.options, p.view = p.topology.Asks.Options, p.topology.Asks.ApplyTo(p.view)
	p.topology.View = p.view
	return nil
}

// want is the desired state of the Cluster.
func (p *pass) want() plan.Want {
	return plan.Want{
		Cluster: p.view.Name, Enabled: p.view.Enabled, Options: p.options, Admission: p.Admission,
	}
}

func count(counter func(outcome string), outcome string) {
	if counter != nil {
		counter(outcome)
	}
}

// resolve finds the settings of the Cluster or, if override is not "", of the pool that names it. It returns nil if the
// outcome has a finding about them.
func (p *pass) resolve(ctx context.Context, override, pool string) (*resolve.Resolution, report.Outcome, error) {
	var out report.Outcome
	resolver := resolve.Resolver{Secrets: p.Memory, Now: p.Now, Object: pool}
	resolution, err := p.Memory.Resolve(ctx, resolver, p.view, p.options, override)
	if found := finding.Of(err); len(found) > 0 {
		count(p.Resolved, found[0].Reason)
		out.Find(found...)
		if found.Has(contract.ReasonSettingsNotFound) {
			out.LookAgain(p.missingDelay())
		}
		return nil, out, nil
	}
	if err != nil {
		count(p.Resolved, contract.ReasonInternalError)
		return nil, out, err
	}
	count(p.Resolved, contract.ReasonConfigured)
	if !resolution.Complete {
		out.Add(contract.ReasonWaitingForEndpoint,
			"spec.controlPlaneEndpoint of Cluster %s/%s is not set yet; bootstrap data waits for it, because NO_PROXY must "+
				"contain it",
			p.view.Namespace, p.view.Name)
	}
	if note := resolution.Note(); note != "" {
		out.Note("%s", note)
	}
	out.Warnings, out.Expires = resolution.Warnings, resolution.Settings.TrustedCAExpiry()
	return &resolution, out, nil
}

// missingDelay is when to look again for a proxy Secret that does not exist: one that is created without
// contract.LabelProxySecret, the commonest slip, brings no event. It grows with the time for which the condition has
// not been True, so that many Clusters without a Secret do not take the requests of others.
func (p *pass) missingDelay() time.Duration {
	const least, part = 10 * time.Second, 6
	condition := meta.FindStatusCondition(p.cluster.Status.Conditions, contract.ConditionProxyConfigured)
	if condition == nil || condition.Status == metav1.ConditionTrue {
		return least
	}
	return max(least, p.Now().Sub(condition.LastTransitionTime.Time)/part)
}

// maxMachines is how many Machines of a Cluster are looked at.
const maxMachines = 100

// proxiedNodes warns of nodes that those of the control plane ask through the proxy. Only for settings with which
// that can be, it reads the Machines, of which the cache has the metadata.
func (p *pass) proxiedNodes(ctx context.Context, main *resolve.Resolution) (out report.Outcome, err error) {
	if main == nil || !main.AsksNodes(p.options) {
		return out, nil
	}
	var list clusterv1.MachineList
	if err := p.Live.List(ctx, &list, client.InNamespace(p.view.Namespace), client.Limit(maxMachines),
		client.MatchingLabels{clusterv1.ClusterNameLabel: p.view.Name}); err != nil {
		return out, fmt.Errorf("listing Machines: %w", err)
	}
	out.Warnings = main.ProxiedNodes(p.options, list.Items)
	return out, nil
}

// reconcileAll changes bootstrap objects to the state that is wanted. main are the settings of the Cluster, nil if they
// are not usable or not needed. Differences of objects of an enabled topology are added to drifts.
func (p *pass) reconcileAll(
	ctx context.Context, objects []reconcile.Object, want plan.Want, main *resolve.Resolution,
	drifts map[reconcile.Drift][]string,
) (reconciled []reconcile.Reconciled, out report.Outcome, err error) {
	reconciled = make([]reconcile.Reconciled, 0, len(objects))
	for _, o := range objects {
		one, drift, found, err := p.reconcileObject(ctx, o, want, main)
		out.Join(found)
		if err != nil {
			return nil, out, err
		}
		p.userData(ctx, &one, &out)
		one.Decision.Notes = p.notes(ctx, o, one.Decision)
		for _, note := range one.Decision.Notes {
			note.Place = note.Place.Of(o.String())
			out.Warnings = append(out.Warnings, note)
		}
		reconciled = append(reconciled, one)
		if drift != reconcile.None {
			drifts[drift] = append(drifts[drift], o.String())
			out.Drifting = append(out.Drifting, reconcile.Groups(o)...)
		}
	}
	return reconciled, out, nil
}

// notes returns plan.Notes of an object that gets the proxy. A machine template that cannot be read has none.
func (p *pass) notes(ctx context.Context, o reconcile.Object, decision plan.Decision) []finding.Finding {
	if decision.Secret == "" || o.IsOfMachine() {
		return nil
	}
	booted := plan.Booted{
		Spec: o.Spec, Own: kinds.SpecOf(o.BootstrapObject), Targets: decision.Recipe.Targets, Options: p.options,
		Resolution: cmp.Or(decision.Resolution, &resolve.Resolution{}),
	}
	for _, ref := range o.Infrastructure() {
		if ref.Kind == plan.KindAWS && booted.Early == (plan.Early{}) {
			template, _ := p.Memory.Template(ctx, p.view.Namespace, ref, false)
			booted.Early = template.Early
		}
	}
	return plan.Notes(booted)
}

// reconcileObject changes one bootstrap object to the state that is wanted, or compares it if the topology controller
// owns it.
func (p *pass) reconcileObject(ctx context.Context, o reconcile.Object, want plan.Want, main *resolve.Resolution) (
	reconciled reconcile.Reconciled, drift reconcile.Drift, out report.Outcome, err error,
) {
	reconciled.Object = o
	if p.guarded.IsBehind(o.BootstrapObject) {
		return reconciled, drift, out, reconcile.CacheBehind(o.Kind, o.BootstrapObject)
	}
	var copied *plan.Copied
	switch {
	case !o.IsTopologyOwned(), p.topology == nil && p.view.Enabled:
	case p.topology == nil:
		return reconciled, drift, out, nil
	case o.IsOfMachine():
		from, err := p.topology.CopiedFrom(ctx, o, want)
		if err != nil {
			return reconciled, drift, out, err
		}
		copied = &from
	case p.view.Enabled:
		reconciled, drift, out, err = p.topology.Inspect(o, want)
		out.Count(drift.Outcome(reconciled))
		return reconciled, drift, out, err
	default:
		return reconciled, drift, p.topology.Leave(o), nil
	}
	reconciled, out, err = p.decideAndCarryOut(ctx, o, want, main, copied)
	return reconciled, drift, out, err
}

// decideAndCarryOut decides about o and carries the decision out. copied is that of plan.Object.
func (p *pass) decideAndCarryOut(
	ctx context.Context, o reconcile.Object, want plan.Want, main *resolve.Resolution, copied *plan.Copied,
) (reconciled reconcile.Reconciled, out report.Outcome, err error) {
	reconciled.Object = o
	object := plan.Object{
		Kind: o.Kind, Name: o.String(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(),
		Spec: o.Spec, Pools: o.Pools, Copied: copied, OfMachine: o.IsOfMachine(),
		Running: o.Running, Busy: o.Busy, Rolls: o.RollsNow(p.Now()), Deleted: !o.GetDeletionTimestamp().IsZero(),
	}
	if want.Enabled {
		if object.Foreign, err = p.reader.ForeignUser(ctx, p.view, o); err != nil {
			return reconciled, out, err
		}
	}
	for {
		decision, err := plan.Decide(object, want, facts{pass: p, ctx: ctx, main: main, out: &out})
		if err != nil {
			return reconciled, out, err
		}
		reconciled, found, err := p.carryOut(ctx, o, decision)
		out.Join(found)
		if errors.Is(err, errTaken) { // since the check
			continue
		}
		return reconciled, out, err
	}
}

// errTaken reports that a foreign Secret has the name of the generated Secret of a decision.
var errTaken = errors.New("the name of the generated Secret is taken")

// facts implements plan.Facts for one object.
type facts struct {
	*pass

	ctx context.Context //nolint:containedctx // lives as long as the decision that it is made for
	// main are the settings of the Cluster, nil if they cannot be used.
	main *resolve.Resolution
	// out gets the findings about the facts.
	out *report.Outcome
}

func (f facts) Values(o plan.Object) (plan.Values, error) {
	if o.Override() == "" {
		return plan.Values{Resolution: f.main}, nil
	}
	resolution, found, err := f.resolve(f.ctx, o.Override(), o.Overrider())
	f.out.Join(found)
	return plan.Values{Resolution: resolution}, err
}

func (f facts) Taken(o plan.Object, secret string) (string, error) {
	if o.Copied != nil { // the names of the topology's Secrets are checked, and no other is worth a request
		return f.secrets.Taken(secret), nil
	}
	why, found, err := f.secrets.WhyTaken(f.ctx, secret)
	f.out.Join(found)
	return why, err
}

func (f facts) Infrastructure(o plan.Object) (plan.Infrastructure, error) {
	found, again, err := f.Memory.Templates(f.ctx, f.view.Namespace, o.Pools, o.OfMachine)
	if again > 0 && !o.OfMachine {
		f.out.LookAgain(again)
	}
	return found, err
}

func (f facts) Begun() (bool, error) {
	return world.ControlPlanes{Cached: f.Client, Live: f.Live}.Begun(f.ctx, f.view.Namespace, f.view.Name)
}

// carryOut carries out a decision about o. It returns errTaken if only writing the generated Secret shows that its name
// is taken: then the decision has to be repeated.
func (p *pass) carryOut(ctx context.Context, o reconcile.Object, decision plan.Decision) (
	reconciled reconcile.Reconciled, out report.Outcome, err error,
) {
	reconciled.Object, reconciled.Decision = o, decision
	resolution := resolve.Resolution{}
	if decision.Resolution != nil {
		resolution = *decision.Resolution
	}
	if decision.Secret != "" {
		if out, err = p.secrets.Ensure(ctx, decision.Secret, resolution); err != nil {
			return reconciled, out, err
		}
		if p.secrets.Taken(decision.Secret) != "" {
			return reconciled, out, errTaken
		}
	}
	count(p.Rendered, decision.Outcome())
	out.Count(decision.Outcome())
	for _, f := range decision.Report() {
		if p.waitsWithFiles(o, f) {
			reconciled.Waits = &f
			continue
		}
		out.Find(f)
	}
	reconciled.Recipe, reconciled.Secret = decision.Recipe, decision.Secret
	if decision.Resolution != nil {
		reconciled.Proxy = resolution.Secret.Name.String()
	}
	if left := o.RollsIn(p.Now()); decision.Waits && left > 0 {
		out.LookAgain(left)
	}
	if len(decision.Edits) > 0 && (decision.Version == 0 || o.Running) {
		if err := p.checkCurrent(ctx); err != nil {
			return reconciled, out, err
		}
	}
	spec, change, err := p.writer.Write(ctx, o, decision)
	if err != nil {
		return reconciled, out, err
	}
	reconciled.Spec = spec
	p.secrets.Keep(patch.References(spec)...)
	switch change {
	case reconcile.Added:
		out.Added = append(out.Added, o.String())
	case reconcile.Removed:
		out.Removed = append(out.Removed, o.String())
	case reconcile.Unchanged:
	}
	return reconciled, out, nil
}

// waitsWithFiles reports whether f says that a control plane waits for a rollout whose running nodes get the files.
func (p *pass) waitsWithFiles(o reconcile.Object, f finding.Finding) bool {
	return f.Reason == contract.ReasonWaitingForRollout && o.Kind == plan.KindControlPlane && p.view.Enabled &&
		p.options.Rollout == contract.RolloutInPlace
}

// waiting returns the findings about control planes that wait: a note, if all nodes have the files.
func waiting(objects []reconcile.Reconciled, behind []status.Group) (found []finding.Finding) {
	for _, o := range objects {
		if o.Waits == nil {
			continue
		}
		f := *o.Waits
		if !slices.ContainsFunc(behind, func(g status.Group) bool { return g.Kind == o.Kind }) {
			f = finding.Finding{Message: o.String() + " gets its entries with its next rollout; its nodes have the files"}
		}
		found = append(found, f)
	}
	return found
}

// checkCurrent is called before entries are removed, Machines are replaced or running nodes are restored, see
// reconcile.CheckCurrent. It asks the API server once a pass.
func (p *pass) checkCurrent(ctx context.Context) error {
	if p.current {
		return nil
	}
	if err := reconcile.CheckCurrent(ctx, p.Live, p.cluster); err != nil {
		return err
	}
	p.current = true
	return nil
}

// reconcileLate patches objects that missed admission. Findings about them are reported with their template.
func (p *pass) reconcileLate(ctx context.Context, main *resolve.Resolution) (report.Outcome, error) {
	late, err := p.configs.Late(ctx)
	if err != nil {
		return report.Outcome{}, err
	}
	_, out, err := p.reconcileAll(ctx, late, p.want(), main, nil)
	out.Findings, out.Objects = nil, nil
	return out, err
}

// followUp reports the Machines that are behind and replaces them if the Cluster asks for that.
func (p *pass) followUp(ctx context.Context, objects []reconcile.Reconciled) (report.Outcome, error) {
	return p.rollouts.Follow(ctx, reconcile.Pass{
		Cluster: p.cluster, Configs: p.configs, Secrets: p.secrets, CheckCurrent: p.checkCurrent,
	}, objects, p.options.Rollout)
}

// followInPlace follows the update in place of the Machines that are behind, if the Cluster asks for it.
func (p *pass) followInPlace(ctx context.Context, objects []reconcile.Reconciled, behind []status.Group) (
	report.Outcome, error,
) {
	if p.inPlace == nil || p.options.Rollout != contract.RolloutInPlace {
		return report.Outcome{}, nil
	}
	return p.inPlace.Follow(ctx, workload.Pass{
		Cluster: p.cluster, Configs: p.configs, Secrets: p.secrets, Objects: objects, Behind: behind, Options: p.options,
	})
}

// restoreNodes has running nodes restored, if the Cluster has had rollout InPlace until its label was removed. The
// condition stays until nothing is left in the workload cluster.
func (p *pass) restoreNodes(ctx context.Context, objects []reconcile.Reconciled) (out report.Outcome, err error) {
	switch {
	case p.inPlace == nil || !intent.Restores(p.cluster.Labels, p.cluster.Annotations):
		return out, nil
	case p.cluster.Annotations[contract.AnnotationApplied] == contract.RestoredValue:
		out.Add(contract.ReasonInPlaceProgressing, "%s", workload.RestoredMessage)
		return out, nil
	}
	if err := p.checkCurrent(ctx); err != nil {
		return out, err
	}
	return p.inPlace.Follow(ctx, workload.Pass{
		Cluster: p.cluster, Configs: p.configs, Secrets: p.secrets, Objects: objects, Options: p.options, Restores: true,
	})
}

// finishTopology completes the pass for the topology. missing are findings about missing objects.
func (p *pass) finishTopology(
	ctx context.Context, objects []reconcile.Reconciled, drifts map[reconcile.Drift][]string, missing report.Outcome,
) (report.Outcome, error) {
	if p.topology == nil {
		return report.Outcome{}, nil
	}
	complete := !slices.ContainsFunc(missing.Findings,
		func(f finding.Finding) bool { return f.Reason == contract.ReasonWaitingForObjects })
	return p.topology.Finish(ctx, objects, drifts, complete)
}
