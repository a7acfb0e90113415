package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Drift is how an object of the topology differs from the hook's result for its template.
type Drift int

// The drifts.
const (
	// None: it is current, or the outcome has the reason why it waits.
	None Drift = iota
	// Lacking: it does not have the proxy.
	Lacking
	// Stale: it has another proxy than it should have.
	Stale
)

// outcome is the outcome of an inspection with a drift, see plan.Decision.
func (d Drift) outcome(reconciled Reconciled) string {
	switch {
	case d != None:
		return plan.OutcomeWaiting
	case reconciled.Recipe == nil:
		return plan.OutcomeLeftAlone
	default:
		return plan.OutcomeUnchanged
	}
}

// finish completes a pass after all objects are reconciled. complete reports that no object was missing.
func (t *Topology) finish(ctx context.Context, done *Result, complete bool) (out Outcome, err error) {
	// An old template may still serve a MachineSet.
	var templates bootstrapv1.KubeadmConfigTemplateList
	if err := t.Reader.Client.List(ctx, &templates, client.InNamespace(t.View.Namespace),
		client.MatchingFields{world.IndexTopology: t.View.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing KubeadmConfigTemplates: %w", err)
	}
	for i := range templates.Items {
		t.Secrets.Keep(patch.References(kinds.View(&templates.Items[i]))...)
	}
	want := map[string]string{contract.AnnotationEnabledBefore: ""}
	if freeze, frozen := settings.FreezeOf(t.Cluster.Annotations); frozen &&
		(t.releases(freeze) || complete && !keeps(freeze, done.Reconciled)) {
		want[contract.AnnotationTopologyHold] = ""
	}
	if t.View.Enabled {
		if t.View.ControlPlaneKind == "" {
			out.Add(contract.ReasonWaitingForObjects, "the topology controller has not created the control plane yet")
		}
		t.reportDrifts(&out, done.Reconciled)
		reconciled := meta.IsStatusConditionTrue(t.Cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
		if !reconciled && !done.IsExplained() && len(out.Findings) == 0 {
			err = t.reportAbsent(ctx, &out)
		}
		if !reconciled && slices.ContainsFunc(out.Findings, waits) {
			err = t.reportCause(ctx, &out)
		}
	}
	if err != nil || len(plan.AnnotationOperations(t.Cluster.Annotations, want)) == 0 {
		return out, err
	}
	return out, t.Writer.Annotate(ctx, t.Cluster, want)
}

// reportAbsent names pools of the topology that do not exist: the control plane comes before them.
func (t *Topology) reportAbsent(ctx context.Context, out *Outcome) error {
	pools, err := t.Reader.Pools(ctx, t.View)
	for _, pool := range t.Settings.Pools {
		is := func(p plan.Pool) bool { return p.Kind == pool.Kind && p.Name == pool.Name }
		if err == nil && pool.UsesProxy() && !slices.ContainsFunc(pools, is) {
			out.Add(contract.ReasonWaitingForObjects, "the topology controller has not created %s yet", pool)
		}
	}
	return err
}

// releases reports whether the Cluster asks for an end of a freeze that the webhook has missed.
func (t *Topology) releases(freeze settings.Freeze) bool {
	return freeze.Enabled == t.View.Enabled || t.View.Annotations[contract.AnnotationRollout] == contract.RolloutImmediate
}

// keeps reports whether a freeze applies to any of objects.
func keeps(freeze settings.Freeze, objects []Reconciled) bool {
	return slices.ContainsFunc(objects, func(o Reconciled) bool {
		return o.IsTopologyOwned() && freeze.Covers(o.Version()) && patch.IsPatched(o.Spec) == freeze.Enabled
	})
}

// reportDrifts names objects with drifts. The topology controller gets some time before the ClusterClass is blamed.
func (t *Topology) reportDrifts(out *Outcome, objects []Reconciled) {
	drifts := map[Drift][]string{}
	for _, o := range objects {
		drifts[o.Drift] = append(drifts[o.Drift], o.String())
	}
	if len(drifts[Stale]) > 0 {
		out.Add(contract.ReasonWaitingForObjects, "the topology controller has not updated %s to the current settings yet",
			finding.Few(drifts[Stale]))
	}
	if len(drifts[Lacking]) == 0 {
		return
	}
	lacking := finding.Few(drifts[Lacking])
	conditions := t.Cluster.Status.Conditions
	if reconciled := meta.FindStatusCondition(conditions,
		clusterv1.ClusterTopologyReconciledCondition); reconciled != nil && reconciled.Status != metav1.ConditionTrue {
		out.Add(contract.ReasonWaitingForObjects,
			"the topology controller has not patched %s yet; its condition %s has reason %s",
			lacking, reconciled.Type, reconciled.Reason)
		return
	}
	reported := meta.FindStatusCondition(conditions, contract.ConditionProxyConfigured)
	left := delay
	switch {
	case reported == nil:
	case reported.Reason == contract.ReasonTemplateNotSupported:
		left = 0
	case reported.Status == metav1.ConditionUnknown:
		left -= t.Now().Sub(reported.LastTransitionTime.Time)
	}
	if left > 0 {
		out.Add(contract.ReasonWaitingForObjects, "the topology controller has not patched %s yet", lacking)
		out.RequeueIn(left)
		return
	}
	class := t.Cluster.GetClassKey()
	out.Add(contract.ReasonTemplateNotSupported,
		"the topology controller did not patch %s; the last item of spec.patches of ClusterClass %s must be {name: %s, "+
			"external: {%s}}",
		lacking, class, contract.Name, settings.PatchLines())
}

func waits(f finding.Finding) bool { return f.Reason == contract.ReasonWaitingForObjects }

const (
	// causeDelay is when to look again why the topology controller waits, because ClusterClasses are not watched.
	causeDelay = time.Minute
	// maxCause is the longest message of another condition, in bytes.
	maxCause = 512
)

// reportCause reports why the topology controller has not done its work: its ClusterClass is not ready, for example
// because no ExtensionConfig registers the handlers, or what its own condition says.
func (t *Topology) reportCause(ctx context.Context, out *Outcome) error {
	class, key := &clusterv1.ClusterClass{}, t.Cluster.GetClassKey()
	out.RequeueIn(causeDelay)
	switch err := t.Writer.Live.Get(ctx, key, class); {
	case apierrors.IsNotFound(err):
		out.Add(contract.ReasonWaitingForObjects, "ClusterClass %s does not exist", key)
		return nil
	case apierrors.IsForbidden(err): // it is in a namespace that a manager of one namespace does not see
	case err != nil:
		return fmt.Errorf("reading ClusterClass %s: %w", key, err)
	}
	ready := meta.FindStatusCondition(class.Status.Conditions, clusterv1.ClusterClassVariablesReadyCondition)
	reconciled := meta.FindStatusCondition(t.Cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	switch {
	case ready != nil && ready.Status != metav1.ConditionTrue:
		out.AddAll(finding.Finding{
			Reason: contract.ReasonWaitingForObjects,
			Message: fmt.Sprintf("ClusterClass %s is not ready, its condition %s has reason %s: %s", key, ready.Type,
				ready.Reason, finding.Line(ready.Message, maxCause)),
			Advice: "check that the ExtensionConfig of each of its patches is applied and Discovered",
		})
	case reconciled != nil && reconciled.Message != "":
		out.Add(contract.ReasonWaitingForObjects, "condition %s of the Cluster has reason %s: %s", reconciled.Type,
			reconciled.Reason, finding.Line(reconciled.Message, maxCause))
	}
	return nil
}
