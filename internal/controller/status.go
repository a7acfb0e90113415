package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
)

// findings are what a pass has found, in order.
type findings []finding.Finding

func (f *findings) add(reason, format string, args ...any) {
	*f = append(*f, finding.Finding{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (f *findings) note(format string, args ...any) { f.add("", format, args...) }

// invalid is the error about something that the user has to change.
func invalid(format string, args ...any) error {
	return finding.Errors{{Reason: contract.ReasonInvalidSettings, Message: fmt.Sprintf(format, args...)}}
}

// explained reports whether a finding has a reason, which is then that of the condition.
func (f findings) explained() bool {
	return slices.ContainsFunc(f, func(one finding.Finding) bool { return one.Reason != "" })
}

// report writes what was found into the condition of the Cluster. What is news is one line in the log and one event.
func (c *Controller) report(ctx context.Context, cluster *clusterv1.Cluster, found findings, summary string) error {
	condition := finding.ConditionOf(found, summary)
	written, err := c.setCondition(ctx, cluster, metav1.Condition{
		Type: contract.ConditionProxyConfigured, Status: metav1.ConditionStatus(condition.Status),
		Reason: condition.Reason, Message: condition.Message,
	})
	if err != nil || !c.news.isNew(cluster.UID, finding.Digest(found), written) {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Reporting", "status", condition.Status, "reason", condition.Reason, "message", condition.Message)
	c.eventReported(cluster, condition)
	return nil
}

// setCondition writes the condition if it differs from what the Cluster has, and reports whether it does in more than
// the generation.
func (c *Controller) setCondition(ctx context.Context, cluster *clusterv1.Cluster, condition metav1.Condition) (bool, error) {
	condition.ObservedGeneration = cluster.Generation
	condition.LastTransitionTime = metav1.NewTime(c.Now())
	changed := true
	if previous := meta.FindStatusCondition(cluster.Status.Conditions, condition.Type); previous != nil {
		if previous.Status == condition.Status {
			condition.LastTransitionTime = previous.LastTransitionTime
		}
		if *previous == condition {
			return false, nil
		}
		changed = previous.Status != condition.Status || previous.Reason != condition.Reason || previous.Message != condition.Message
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&condition)
	if err != nil {
		return false, fmt.Errorf("converting condition: %w", err)
	}
	return changed, c.applyConditions(ctx, cluster, []any{object})
}

// removeCondition takes the condition off the Cluster.
func (c *Controller) removeCondition(ctx context.Context, cluster *clusterv1.Cluster) error {
	if meta.FindStatusCondition(cluster.Status.Conditions, contract.ConditionProxyConfigured) == nil {
		return nil
	}
	err := c.applyConditions(ctx, cluster, []any{})
	if err == nil && c.news.isNew(cluster.UID, "", true) {
		ctrl.LoggerFrom(ctx).Info("Reporting that the proxy is removed")
		c.eventGone(cluster)
	}
	return err
}

// news remembers what was last told about each Cluster: a cache that is behind shows the old condition once more. After a
// restart the condition itself tells.
type news struct {
	mutex sync.Mutex
	last  map[types.UID]string
}

// maxNews is about how many Clusters is remembered. Beyond that all of it is forgotten.
const maxNews = 100_000

// isNew remembers a digest of findings, and reports whether the one before was another. changed is the answer about a
// Cluster of which nothing is remembered.
func (n *news) isNew(uid types.UID, digest string, changed bool) bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	before, known := n.last[uid]
	if n.last == nil || len(n.last) >= maxNews {
		n.last = map[types.UID]string{}
	}
	n.last[uid] = digest
	return known && before != digest || !known && changed
}

func (n *news) forget(uid types.UID) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	delete(n.last, uid)
}

// applyConditions applies our part of the conditions, a list that the API server merges by type: those of others
// are not touched.
func (c *Controller) applyConditions(ctx context.Context, cluster *clusterv1.Cluster, conditions []any) error {
	configuration := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": cluster.Name, "namespace": cluster.Namespace},
		"status":   map[string]any{"conditions": conditions},
	}}
	configuration.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	// The UID keeps the condition from a Cluster of the same name that was created since.
	configuration.SetUID(cluster.UID)
	err := c.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(configuration),
		client.FieldOwner(contract.Name), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying condition: %w", err)
	}
	return nil
}
