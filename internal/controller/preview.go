package controller

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

// Preview is the result of a dry-run reconcile.
type Preview = reconcile.Preview

// Preview runs one pass over a Cluster and reports nothing. Only with a client that does not write, it changes nothing.
func (c *Controller) Preview(ctx context.Context, cluster *clusterv1.Cluster) (Preview, error) {
	view := intent.ClusterOf(cluster)
	if view.Deleted {
		return Preview{}, nil
	}
	done, err := c.run(ctx, cluster, view)
	if found := finding.Of(err); len(found) > 0 {
		done.Findings, err = found, nil
	}
	preview := Preview{Outcome: done.Outcome, Reconciled: done.reconciled}
	if err == nil && !done.idle && !done.gone {
		preview.Condition = finding.ConditionOf(done.Findings, done.summary)
	}
	return preview, err
}
