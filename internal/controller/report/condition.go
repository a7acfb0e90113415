package report

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
)

// Condition writes one condition of Clusters.
type Condition struct {
	// Client writes to the API server.
	Client client.Client
	// Now is the clock.
	Now func() time.Time
	// Type is the type of the condition.
	Type string
	// Owner is the field manager, which has no other condition: applying one removes the others that it has applied.
	Owner string
}

// IsOn reports whether a Cluster has the condition.
func (c Condition) IsOn(cluster *clusterv1.Cluster) bool {
	return meta.FindStatusCondition(cluster.Status.Conditions, c.Type) != nil
}

// Set writes the condition if it differs from the Cluster's, and reports whether more than the generation differs.
func (c Condition) Set(ctx context.Context, cluster *clusterv1.Cluster, content finding.Condition) (bool, error) {
	previous := meta.FindStatusCondition(cluster.Status.Conditions, c.Type)
	condition := c.of(cluster, content, previous)
	return differs(previous, condition), c.write(ctx, cluster, previous, condition)
}

// of returns the condition of a Cluster with a content. It is as old as the previous one, nil if there is none, if that
// has its status.
func (c Condition) of(cluster *clusterv1.Cluster, content finding.Condition,
	previous *metav1.Condition,
) metav1.Condition {
	condition := metav1.Condition{
		Type: c.Type, Status: metav1.ConditionStatus(content.Status), Reason: content.Reason, Message: content.Message,
		ObservedGeneration: cluster.Generation, LastTransitionTime: metav1.NewTime(c.Now()),
	}
	if previous != nil && previous.Status == condition.Status {
		condition.LastTransitionTime = previous.LastTransitionTime
	}
	return condition
}

// differs reports whether more than the generation differs from the previous condition, nil if there is none.
func differs(previous *metav1.Condition, condition metav1.Condition) bool {
	return previous == nil || previous.Status != condition.Status || previous.Reason != condition.Reason ||
		previous.Message != condition.Message
}

// write writes condition if it differs from the Cluster's, which is previous.
func (c Condition) write(ctx context.Context, cluster *clusterv1.Cluster, previous *metav1.Condition,
	condition metav1.Condition,
) error {
	if previous != nil && *previous == condition {
		return nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&condition)
	if err != nil {
		return fmt.Errorf("converting condition: %w", err)
	}
	return c.apply(ctx, cluster, []any{object})
}

// Remove removes the condition from a Cluster that has it.
func (c Condition) Remove(ctx context.Context, cluster *clusterv1.Cluster) error {
	if !c.IsOn(cluster) {
		return nil
	}
	return c.apply(ctx, cluster, []any{})
}

// apply applies our part of the conditions, a list that the API server merges by type: those of others are not changed.
func (c Condition) apply(ctx context.Context, cluster *clusterv1.Cluster, conditions []any) error {
	configuration := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": cluster.Name, "namespace": cluster.Namespace},
		"status":   map[string]any{"conditions": conditions},
	}}
	configuration.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	// The UID prevents writing the condition to a newer Cluster of the same name. The version is read by package backoff.
	configuration.SetUID(cluster.UID)
	configuration.SetResourceVersion(cluster.ResourceVersion)
	if err := c.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(configuration),
		client.FieldOwner(c.Owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying condition: %w", err)
	}
	return nil
}
