package controller

import (
	"context"
	"slices"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// A KubeadmConfigTemplate can outlive its use: its pool got a new one, or it now serves a pool of another Cluster. It
// still has the entries of the Cluster that it was patched for, which world.IndexPatchedFor finds.

// strays returns those of patched, the templates that were patched for the Cluster, that no pool of it uses.
func strays(objects []reconcile.Object, patched []bootstrapv1.KubeadmConfigTemplate) (strays []reconcile.Object) {
	for i := range patched {
		template := &patched[i]
		known := func(o reconcile.Object) bool { return o.Kind == plan.KindTemplate && o.GetName() == template.Name }
		if !slices.ContainsFunc(objects, known) && !slices.ContainsFunc(strays, known) {
			strays = append(strays, reconcile.NewObject(template, plan.KindTemplate, false))
		}
	}
	return strays
}

// tidy removes our entries from templates that are now used by an unlabelled Cluster, and from unused ones when the
// Cluster is not enabled any more. An unused template may still serve an old MachineSet. patched is that of strays.
func (p *pass) tidy(ctx context.Context, objects []reconcile.Object, patched []bootstrapv1.KubeadmConfigTemplate) (
	out report.Outcome, err error,
) {
	remove := p.want()
	remove.Enabled = false
	for _, stray := range strays(objects, patched) {
		user, err := p.reader.ForeignUser(ctx, p.view, stray)
		if err != nil {
			return out, err
		}
		theirs := false
		if user != nil {
			cluster := &clusterv1.Cluster{}
			exists, err := p.reader.Get(ctx, p.view.Namespace, user.Cluster, cluster)
			if err != nil {
				return out, err
			}
			theirs = exists && intent.StateOf(cluster.Labels) != intent.Disabled
		}
		if theirs || user == nil && p.view.Enabled {
			p.secrets.Keep(patch.References(stray.Spec)...)
			continue
		}
		_, _, found, err := p.reconcileObject(ctx, stray, remove, nil)
		out.Join(found)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}
