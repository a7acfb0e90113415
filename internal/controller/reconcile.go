package controller

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// Reconcile changes the objects of one Cluster to the state that its label, annotations and proxy Secret desire.
func (c *Controller) Reconcile(ctx context.Context, cluster *clusterv1.Cluster) (ctrl.Result, error) {
	ctx = c.guarded.ForCluster(ctx, cluster)
	view := intent.ClusterOf(cluster)
	switch {
	case !c.Scope.Has(view.Namespace, cluster.Labels):
		c.forget(cluster)
		return ctrl.Result{}, nil
	case view.Deleted:
		c.forget(cluster)
		return ctrl.Result{}, c.releaseDeleted(ctx, view)
	}
	done, err := c.run(ctx, cluster, view)
	if done.idle {
		return ctrl.Result{}, err
	}
	return c.conclude(ctx, cluster, done, err)
}

// forget forgets a Cluster that is deleted, or not served any more.
func (c *Controller) forget(cluster client.Object) {
	c.reporter.Forget(cluster.GetUID())
	c.Memory.Forget(client.ObjectKeyFromObject(cluster))
}

// run runs a pass over a Cluster that is not being deleted.
func (c *Controller) run(ctx context.Context, cluster *clusterv1.Cluster, view intent.Cluster) (result, error) {
	switch {
	case view.Paused:
		return result{idle: true}, nil
	case view.Unclear != nil:
		return result{}, view.Unclear
	}
	p := c.newPass(cluster, view)
	if view.Enabled {
		return p.enable(ctx)
	}
	if idle, err := p.isIdle(ctx); err != nil || idle {
		return result{idle: true}, err
	}
	return p.disable(ctx)
}

// result is the result of a pass.
type result struct {
	report.Outcome

	// summary is the message of the condition if no finding has a reason.
	summary string
	// reconciled are the bootstrap objects.
	reconciled []reconcile.Reconciled
	// idle reports that there was nothing to do or to report.
	idle bool
	// gone reports that nothing is left to report about the Cluster.
	gone bool
}

// conclude reports the result of a pass, or the error that ended it. It is the only place that writes the condition.
func (c *Controller) conclude(ctx context.Context, cluster *clusterv1.Cluster, done result,
	err error,
) (ctrl.Result, error) {
	out := done.Outcome
	if err == nil {
		contested, again := c.guarded.Contested(client.ObjectKeyFromObject(cluster))
		out.Find(contested...)
		done.LookAgain(again)
		if done.gone && len(contested) == 0 {
			err, out = c.reporter.Remove(ctx, cluster, out), report.Outcome{}
		} else {
			err, out = c.reporter.Report(ctx, cluster, out, done.summary), report.Outcome{}
		}
	}
	switch found := finding.Of(err); {
	case err == nil:
		return ctrl.Result{RequeueAfter: done.Again}, nil
	case apierrors.IsConflict(err):
		// Somebody wrote in between. The cache receives that write soon.
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the cache after a write conflict")
		c.reporter.Changed(cluster, out)
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	case len(found) > 0:
		out.Findings, err = found, nil
	default:
		out.Findings = nil
		out.Add(contract.ReasonInternalError, "Please check controller logs for errors")
	}
	if err = errors.Join(err, client.IgnoreNotFound(c.reporter.Report(ctx, cluster, out, ""))); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: done.Again}, nil // what steps before the finding want to look at again
}

// conflictDelay is when a pass that ended with a write conflict is repeated, if the event of the other write does not
// come before, or was that of our own record.
const conflictDelay = time.Second

// steps runs one step after the other, and joins their outcomes.
func steps(ctx context.Context, each ...func(context.Context) (report.Outcome, error)) (out report.Outcome, err error) {
	for _, step := range each {
		found, err := step(ctx)
		out.Join(found)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// enable configures all objects that can be, and collects findings about the others.
func (p *pass) enable(ctx context.Context) (done result, err error) {
	if err := p.readOptions(); err != nil {
		done.Find(finding.Of(err)...)
		if p.view.Topology { // its variable may name another Secret
			return done, nil
		}
		_, found, err := p.resolve(ctx, "", "")
		done.Find(found.Findings...)
		return done, err
	}
	patched, err := p.reader.PatchedFor(ctx, p.view)
	if err != nil {
		return done, err
	}
	objects, missing, err := p.reader.Collect(ctx, p.view, patched)
	if err != nil {
		return done, err
	}
	main, found, err := p.resolve(ctx, "", "")
	if err != nil {
		return done, err
	}
	done.Join(found)
	if found, err = p.proxiedNodes(ctx, main); err != nil {
		return done, err
	}
	done.Join(found)
	done.Join(missing)
	var reconciled []reconcile.Reconciled
	drifts := map[reconcile.Drift][]string{}
	found, err = steps(ctx,
		func(ctx context.Context) (report.Outcome, error) {
			if p.topology == nil {
				return report.Outcome{}, nil
			}
			return p.topology.EnsureSecrets(ctx, objects, main, p.resolve)
		},
		func(ctx context.Context) (out report.Outcome, err error) {
			reconciled, out, err = p.reconcileAll(ctx, objects, p.want(), main, drifts)
			return out, err
		},
		func(ctx context.Context) (report.Outcome, error) { return p.reconcileLate(ctx, main) },
		func(ctx context.Context) (out report.Outcome, err error) {
			if out, err = p.followUp(ctx, reconciled); err != nil {
				return out, err
			}
			out.Find(waiting(reconciled, *out.Behind)...)
			found, err := p.followInPlace(ctx, reconciled, *out.Behind)
			out.Join(found)
			return out, err
		},
		func(ctx context.Context) (report.Outcome, error) { return p.tidy(ctx, objects, patched) },
		func(ctx context.Context) (report.Outcome, error) {
			return p.finishTopology(ctx, reconciled, drifts, missing)
		},
		func(ctx context.Context) (report.Outcome, error) { return report.Outcome{}, p.secrets.Clean(ctx) },
	)
	done.Join(found)
	if err != nil {
		return done, err
	}
	done = done.withWarnings()
	done.reconciled = reconciled
	done.Find(intent.CheckNames(p.cluster.Labels, intent.SourceOf(p.cluster))...)
	done.Find(reconcile.CheckNames(objects)...)
	done.summary = done.summarize(p.view, reconciled, len(missing.Findings) > 0)
	return done, nil
}

// disable removes everything that was added. The condition is removed last.
func (p *pass) disable(ctx context.Context) (done result, err error) {
	if err := p.readOptions(); err != nil {
		p.options = intent.Options{Rollout: contract.RolloutOnNextRollout} // removal continues, whatever it says
	}
	patched, err := p.reader.PatchedFor(ctx, p.view)
	if err != nil {
		return done, err
	}
	objects, missing, err := p.reader.Collect(ctx, p.view, patched)
	if err != nil {
		return done, err
	}
	late, err := p.configs.Late(ctx)
	if err != nil {
		return done, err
	}
	var reconciled []reconcile.Reconciled
	done.Outcome, err = steps(ctx,
		func(ctx context.Context) (out report.Outcome, err error) {
			reconciled, out, err = p.reconcileAll(ctx, objects, p.want(), nil, nil)
			return out, err
		},
		func(ctx context.Context) (report.Outcome, error) {
			_, out, err := p.reconcileAll(ctx, late, p.want(), nil, nil)
			return out, err
		},
		func(ctx context.Context) (report.Outcome, error) {
			out, err := p.followUp(ctx, reconciled)
			out.Findings = nil // which Machines still have the proxy is not news
			return out, err
		},
		func(ctx context.Context) (report.Outcome, error) { return p.tidy(ctx, objects, patched) },
		func(ctx context.Context) (report.Outcome, error) { return p.restoreNodes(ctx, reconciled) },
		func(ctx context.Context) (report.Outcome, error) {
			return p.finishTopology(ctx, reconciled, nil, missing)
		},
		func(ctx context.Context) (report.Outcome, error) { return report.Outcome{}, p.secrets.Clean(ctx) },
	)
	done.gone, done.reconciled = !done.IsExplained(), reconciled
	return done, err
}

// withWarnings returns r with its warnings among its findings.
func (r result) withWarnings() result {
	r.Find(finding.Notes(resolve.Mendable(r.Warnings))...)
	r.Warnings = nil
	return r
}

// summarize returns the message of a configured Cluster. A Cluster that is not configured although there are no
// findings gets findings that say so. unsupported reports whether an object was left alone because it cannot be
// patched.
func (r *result) summarize(cluster intent.Cluster, objects []reconcile.Reconciled, unsupported bool) string {
	counted := make([]finding.Object, len(objects))
	for i, o := range objects {
		counted[i] = finding.Object{
			Name: o.String(), Secret: o.Proxy, Carries: patch.IsPatched(o.Spec), InPlace: o.Waits != nil,
		}
	}
	if !r.IsExplained() {
		r.Find(finding.Unconfigured(cluster.Namespace+"/"+cluster.Name, counted, unsupported)...)
	}
	return finding.Summary(counted)
}

// releaseDeleted lets Cluster API delete a control plane that this product has paused.
func (c *Controller) releaseDeleted(ctx context.Context, cluster intent.Cluster) error {
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
