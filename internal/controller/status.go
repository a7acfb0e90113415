package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

func compare[T cmp.Ordered](a, b T) int { return cmp.Compare(a, b) }

// finding is one thing that the condition tells. A finding without a reason is a note: it does not stop the
// condition from being True.
type finding struct{ reason, message string }

type findings []finding

func (f *findings) add(reason, format string, args ...any) {
	*f = append(*f, finding{reason: reason, message: fmt.Sprintf(format, args...)})
}

func (f *findings) note(format string, args ...any) { f.add("", format, args...) }

// maxFindings is how many findings a message names; the others are counted.
const maxFindings = 8

// condition sums findings up. The reason is the most severe one; messages keep the order of the findings, the
// severe before the notes.
func (f findings) condition(configured string) metav1.Condition {
	ranked := slices.Clone(f)
	slices.SortStableFunc(ranked, func(a, b finding) int { return compare(rank(a.reason), rank(b.reason)) })
	condition := metav1.Condition{
		Type: contract.ConditionProxyConfigured, Status: metav1.ConditionTrue, Reason: contract.ReasonConfigured,
	}
	var messages []string
	if len(ranked) > 0 && ranked[0].reason != "" {
		condition.Reason = ranked[0].reason
		condition.Status = statusOf(ranked[0].reason)
	} else {
		messages = append(messages, configured)
	}
	for i, finding := range ranked {
		if i == maxFindings {
			messages = append(messages, fmt.Sprintf("and %d more", len(ranked)-i))
			break
		}
		messages = append(messages, finding.message)
	}
	condition.Message = strings.Join(slices.DeleteFunc(messages, func(m string) bool { return m == "" }), "; ")
	return condition
}

// ranking lists the reasons from the one that the user must act on first.
func ranking() []string {
	return []string{
		contract.ReasonInternalError, contract.ReasonInvalidSettings, contract.ReasonSettingsNotFound, contract.ReasonConflictingFile,
		contract.ReasonSharedTemplate, contract.ReasonContested, contract.ReasonTemplateNotSupported, contract.ReasonWaitingForObjects,
		contract.ReasonWaitingForEndpoint, contract.ReasonPaused, contract.ReasonRemovalWaiting, contract.ReasonWaitingForRollout,
		contract.ReasonConfiguring,
	}
}

func rank(reason string) int {
	if reason == "" {
		return len(ranking())
	}
	return slices.Index(ranking(), reason)
}

// statusOf is Unknown while something is expected to come by itself, and False when it is not.
func statusOf(reason string) metav1.ConditionStatus {
	switch reason {
	case contract.ReasonConfiguring, contract.ReasonInternalError, contract.ReasonWaitingForObjects, contract.ReasonWaitingForEndpoint, contract.ReasonPaused:
		return metav1.ConditionUnknown
	}
	return metav1.ConditionFalse
}

// setCondition writes the condition if it differs from what the Cluster has. It reports whether the reason or the
// status changed, which is when an event is due.
func (c *Controller) setCondition(ctx context.Context, cluster *clusterv1.Cluster, condition metav1.Condition) (bool, error) {
	condition.ObservedGeneration = cluster.Generation
	condition.LastTransitionTime = metav1.NewTime(c.Now())
	previous := meta.FindStatusCondition(cluster.Status.Conditions, condition.Type)
	transition := previous == nil || previous.Reason != condition.Reason || previous.Status != condition.Status
	if previous != nil {
		if previous.Status == condition.Status {
			condition.LastTransitionTime = previous.LastTransitionTime
		}
		if *previous == condition {
			return false, nil
		}
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&condition)
	if err != nil {
		return false, fmt.Errorf("converting condition: %w", err)
	}
	return transition, c.applyConditions(ctx, cluster, []any{object})
}

// removeCondition takes the condition off the Cluster.
func (c *Controller) removeCondition(ctx context.Context, cluster *clusterv1.Cluster) error {
	if meta.FindStatusCondition(cluster.Status.Conditions, contract.ConditionProxyConfigured) == nil {
		return nil
	}
	return c.applyConditions(ctx, cluster, []any{})
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
