package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Reconcile changes the objects of one Cluster to the state that its label, annotations and proxy Secret desire, and
// reports about it.
func (c *Controller) Reconcile(ctx context.Context, cluster *clusterv1.Cluster) (ctrl.Result, error) {
	ctx = c.guarded.ForCluster(ctx, cluster)
	switch {
	case !c.Scope.Has(cluster.Namespace, cluster.Labels):
		c.forget(cluster)
		return ctrl.Result{}, nil
	case !cluster.DeletionTimestamp.IsZero():
		c.forget(cluster)
		return ctrl.Result{}, c.releaseDeleted(ctx, settings.ClusterOf(cluster))
	}
	done, err := c.run(ctx, cluster)
	if done.silent {
		return ctrl.Result{}, err
	}
	return c.conclude(ctx, cluster, done, err)
}

// run gathers what a decision depends on, decides, applies the decisions, and follows the Machines. A Cluster with the
// label and one without it take the same way.
func (c *Controller) run(ctx context.Context, cluster *clusterv1.Cluster) (done Result, err error) {
	view := settings.ClusterOf(cluster)
	switch {
	case view.Paused:
		return Result{silent: true}, nil
	case view.Unclear != nil:
		return done, view.Unclear
	}
	p := c.newPass(cluster, view)
	if err := p.readOptions(); err != nil && view.Enabled {
		return c.reportInvalid(ctx, p, err)
	}
	if err := c.gather(ctx, p); err != nil {
		return Result{silent: !view.Enabled}, err // without the label there may be no condition to report it in
	}
	if nothing, err := c.hasNothingOfOurs(ctx, p); err != nil || nothing {
		return Result{silent: true}, err
	}
	// What is decided before an error is applied: a pool that cannot be looked at does not hold up the others.
	if err := errors.Join(c.decide(ctx, p, &done), c.apply(ctx, p, &done)); err != nil {
		return done, err
	}
	if err := c.follow(ctx, p, &done); err != nil {
		return done, err
	}
	if !view.Enabled {
		done.gone = !done.IsExplained()
		return done, nil
	}
	done.AddAll(finding.Notes(settings.Mendable(done.Warnings))...)
	done.Warnings = nil
	done.AddAll(settings.CheckNames(cluster.Labels, settings.SourceOf(cluster))...)
	done.AddAll(checkNames(p.objects)...)
	done.summarize(view, len(p.missing.Findings) > 0)
	return done, nil
}

// reportInvalid reports about settings that cannot be read, and about the proxy Secret as far as its name is known.
func (c *Controller) reportInvalid(ctx context.Context, p *Pass, cause error) (done Result, err error) {
	done.AddAll(finding.Of(cause)...)
	if p.View.Topology { // its variable may name another Secret
		return done, nil
	}
	_, found, err := c.resolve(ctx, p, "", "")
	done.AddAll(found.Findings...)
	done.RequeueIn(found.RequeueAfter)
	return done, err
}

// follow finds the Machines that are behind, and replaces those that annotation rollout asks to replace; runs the steps
// of other packages; and deletes the generated Secrets that nothing needs any more.
func (c *Controller) follow(ctx context.Context, p *Pass, done *Result) error {
	found, err := c.rollOut(ctx, p, done)
	if p.View.Enabled { // after the label is removed, Machines with the proxy are expected
		done.Join(found)
	}
	if err != nil {
		return err
	}
	for _, step := range c.Steps {
		found, err := step.Run(ctx, p)
		if done.Join(found); err != nil {
			return err //nolint:wrapcheck // it says what failed
		}
	}
	if p.topology != nil {
		found, err := p.topology.finish(ctx, done, !slices.ContainsFunc(p.missing.Findings, waits))
		if done.Join(found); err != nil {
			return err
		}
	}
	return p.Secrets.Clean(ctx)
}

// conclude reports the result of a pass, or the error that ended it. It is the only caller of Reporter.Report and
// Reporter.Remove, which write the condition.
func (c *Controller) conclude(ctx context.Context, cluster *clusterv1.Cluster, done Result, err error) (
	ctrl.Result, error,
) {
	requeue := done.RequeueAfter
	if err == nil {
		contested, again := c.guarded.Contested(client.ObjectKeyFromObject(cluster))
		done.AddAll(contested...)
		done.RequeueIn(again)
		requeue = done.RequeueAfter
		if done.gone && len(contested) == 0 {
			err = c.reporter.Remove(ctx, cluster, done)
		} else {
			err = c.reporter.Report(ctx, cluster, done)
		}
		done = Result{} // it is reported: from here on it has what a failed report adds
	}
	switch found := finding.Of(err); {
	case err == nil:
		return ctrl.Result{RequeueAfter: requeue}, nil
	case apierrors.IsConflict(err):
		// Somebody wrote in between. The cache receives that write soon.
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the cache after a write conflict")
		c.reporter.changed(cluster, changesOf(done))
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	case len(found) > 0:
		done.Findings, err = found, nil
	default:
		done.Findings = nil
		done.Add(contract.ReasonInternalError, "Please check controller logs for errors")
	}
	if err = errors.Join(err, client.IgnoreNotFound(c.reporter.Report(ctx, cluster, done))); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: requeue}, nil // as it was asked for before the error
}

// conflictDelay is when a pass that ended with a write conflict is repeated, if the event of the other write does not
// come before. That of our own contract.AnnotationMachinesBehind never comes.
const conflictDelay = time.Second

// Preview is the result of a pass that reports nothing.
type Preview struct {
	Result

	// Condition is the one that the pass would report, the zero value if it would report none or remove it.
	Condition finding.Condition
}

// Preview runs one pass over a Cluster and reports nothing. It writes unless its client discards writes.
func (c *Controller) Preview(ctx context.Context, cluster *clusterv1.Cluster) (Preview, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return Preview{}, nil
	}
	done, err := c.run(ctx, cluster)
	if found := finding.Of(err); len(found) > 0 {
		done.Findings, err = found, nil
	}
	preview := Preview{Result: done}
	if err == nil && !done.silent && !done.gone {
		preview.Condition = finding.ConditionOf(done.Findings, done.summary)
	}
	return preview, err
}

// forget forgets a Cluster that is deleted, or not served any more.
func (c *Controller) forget(cluster client.Object) {
	c.reporter.Forget(cluster.GetUID())
	c.Memory.Forget(client.ObjectKeyFromObject(cluster))
}

// releaseDeleted lets Cluster API delete a control plane that this product has paused.
func (c *Controller) releaseDeleted(ctx context.Context, cluster settings.Cluster) error {
	if cluster.ControlPlaneKind != plan.KindControlPlane {
		return nil
	}
	controlPlane := kinds.NewBootstrapObject(plan.KindControlPlane)
	exists, err := c.reader.Get(ctx, cluster.Namespace, cluster.ControlPlaneName, controlPlane)
	if err != nil || !exists || !plan.IsPausedByUs(controlPlane.GetAnnotations()) {
		return err
	}
	return c.writer.Annotate(ctx, controlPlane, map[string]string{clusterv1.PausedAnnotation: ""})
}

// Result is what a pass over a Cluster has found and done.
type Result struct {
	Outcome

	// Reconciled are the bootstrap objects in use, with the decisions about them.
	Reconciled []Reconciled
	// Behind are the Machines whose bootstrap data is not what a new Machine would get, by control plane and pool, nil if
	// that is not known. RolledOut are those that the pass has made Cluster API replace.
	Behind    *[]outdated.Group
	RolledOut []outdated.Group

	// others are objects of which only changes are reported: KubeadmConfigs, and templates that are not in use.
	others []Reconciled
	// expires is when the first trusted certificate in use expires, and changed when a value that nodes read last changed
	// in a generated Secret; zero times if there is none.
	expires, changed time.Time
	// summary is the message of the condition if no finding has a reason.
	summary string
	// silent reports that there is nothing to report, whether the pass has ended with an error or not.
	silent bool
	// gone reports that the condition is to be removed.
	gone bool
}

// Drifting are the groups of Machines, without their Machines, that the topology controller will replace.
func (r Result) Drifting() (groups []outdated.Group) {
	for _, o := range r.Reconciled {
		if o.Drift != None {
			groups = append(groups, groupsOf(o.Object)...)
		}
	}
	return groups
}

// summarize makes the message of a configured Cluster. A Cluster that is not configured although there are no findings
// gets findings that say so. unsupported reports whether an object was left alone because it cannot be patched.
func (r *Result) summarize(cluster settings.Cluster, unsupported bool) {
	counted := make([]finding.Object, len(r.Reconciled))
	for i, o := range r.Reconciled {
		counted[i] = finding.Object{
			Name: o.String(), Secret: o.Proxy, Pools: len(o.Pools), Carries: patch.IsPatched(o.Spec), OnNodes: o.Waits != nil,
		}
	}
	if !r.IsExplained() {
		r.AddAll(finding.Unconfigured(cluster.Namespace+"/"+cluster.Name, counted, unsupported)...)
	}
	r.summary = finding.Summary(counted)
}

// waiting returns the findings about control planes that wait: a note, if none of their Machines is behind.
func waiting(objects []Reconciled, behind []outdated.Group) (found []finding.Finding) {
	for _, o := range objects {
		if o.Waits == nil {
			continue
		}
		f := *o.Waits
		if !slices.ContainsFunc(behind, func(g outdated.Group) bool { return g.Kind == o.Kind }) {
			f = finding.Finding{Message: o.String() + " gets its entries with its next rollout; its nodes have the files"}
		}
		found = append(found, f)
	}
	return found
}

// checkNames returns warnings about annotations of bootstrap objects and pools that nothing reads. Pools of a topology
// have those that the Cluster has for them.
func checkNames(objects []Object) (found []finding.Finding) {
	for _, o := range objects {
		for _, warning := range settings.CheckBootstrap(o.GetAnnotations()) {
			warning.Place = warning.Place.Of(o.String())
			found = append(found, warning)
		}
		for _, pool := range o.Pools {
			if pool.Topology {
				continue
			}
			for _, warning := range settings.CheckPool(pool.Annotations) {
				warning.Place = warning.Place.Of(pool.String())
				found = append(found, warning)
			}
		}
	}
	return found
}

// Outcome is the result of a step of a pass over a Cluster. The zero value means that there is nothing to report.
type Outcome struct {
	// Findings are in the order in which they were found.
	Findings []finding.Finding
	// Warnings are about the settings in use. They are reported after all findings.
	Warnings []finding.Finding
	// RequeueAfter is the time after which the next pass is due even if nothing changes, or zero.
	RequeueAfter time.Duration
}

// Add adds a finding. A reason other than "" is one for the condition.
func (o *Outcome) Add(reason, format string, args ...any) {
	o.Findings = append(o.Findings, finding.Finding{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// Note adds a finding that changes no reason.
func (o *Outcome) Note(format string, args ...any) { o.Add("", format, args...) }

// AddAll adds findings.
func (o *Outcome) AddAll(found ...finding.Finding) { o.Findings = append(o.Findings, found...) }

// RequeueIn asks for a pass after a time, or earlier; 0 asks for none.
func (o *Outcome) RequeueIn(after time.Duration) {
	if after > 0 && (o.RequeueAfter == 0 || after < o.RequeueAfter) {
		o.RequeueAfter = after
	}
}

// Join adds the outcome of a later step, which may have ended with an error.
func (o *Outcome) Join(later Outcome) {
	o.Findings = append(o.Findings, later.Findings...)
	o.Warnings = append(o.Warnings, later.Warnings...)
	o.RequeueIn(later.RequeueAfter)
}

// IsExplained reports whether a finding has a reason, which is then that of the condition.
func (o Outcome) IsExplained() bool {
	return slices.ContainsFunc(o.Findings, func(one finding.Finding) bool { return one.Reason != "" })
}
