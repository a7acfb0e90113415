package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
)

// Reporter writes the condition of Clusters. Its methods can be called concurrently.
type Reporter struct {
	// Client writes to the API server.
	Client client.Client
	// Recorder emits events.
	Recorder events.EventRecorder
	// Now is the clock.
	Now func() time.Time

	memory memory
}

// Report writes the findings of a pass into the condition of its Cluster, or the summary if none of them has a reason,
// and emits the event of the pass.
func (r *Reporter) Report(ctx context.Context, cluster *clusterv1.Cluster, done Result) error {
	found, changes := finding.ConditionOf(done.Findings, done.summary), changesOf(done)
	r.memory.note(cluster, found, done)
	changed, err := r.condition().Set(ctx, cluster, found)
	if err == nil {
		err = r.record(ctx, cluster, done.Behind)
	}
	if err != nil || !r.memory.isNew(cluster.UID, finding.Digest(done.Findings), changed) {
		r.changed(cluster, changes)
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Reporting", "status", found.Status, "reason", found.Reason, "message", found.Message)
	r.reported(cluster, found, changes.String())
	return nil
}

// condition is the condition that r writes.
func (r *Reporter) condition() Condition {
	return Condition{Client: r.Client, Now: r.Now, Type: contract.ConditionProxyConfigured, Owner: contract.Name}
}

// Remove removes the condition from a Cluster, and emits the event of the pass.
func (r *Reporter) Remove(ctx context.Context, cluster *clusterv1.Cluster, done Result) error {
	changes := changesOf(done)
	r.memory.forgetState(cluster.UID)
	err := r.record(ctx, cluster, &[]outdated.Group{})
	if err == nil {
		err = r.condition().Remove(ctx, cluster)
	}
	if err != nil || !HasCondition(cluster) || !r.memory.isNew(cluster.UID, "", true) {
		r.changed(cluster, changes)
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Reporting that the proxy is removed")
	r.gone(cluster, changes.String())
	return nil
}

// record writes the counts of a pass into the annotation of a Cluster, if they differ. nil is that they are not known.
func (r *Reporter) record(ctx context.Context, cluster *clusterv1.Cluster, behind *[]outdated.Group) error {
	if behind == nil {
		return nil
	}
	text := outdated.Text(*behind)
	if text == cluster.Annotations[contract.AnnotationMachinesBehind] {
		return nil
	}
	annotations := map[string]any{contract.AnnotationMachinesBehind: nil}
	if text != "" {
		annotations[contract.AnnotationMachinesBehind] = text
	}
	// The UID prevents writing to a newer Cluster of the same name.
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": cluster.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding annotations of a Cluster: %w", err)
	}
	written := cluster.DeepCopy()
	err = r.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, data), client.FieldOwner(contract.Name))
	if err != nil {
		return fmt.Errorf("writing annotations of a Cluster: %w", err)
	}
	return nil
}

// Forget forgets a Cluster that is being deleted.
func (r *Reporter) Forget(uid types.UID) {
	r.memory.forget(uid)
}

// HasCondition reports whether a Cluster has the condition.
func HasCondition(cluster *clusterv1.Cluster) bool {
	return Condition{Type: contract.ConditionProxyConfigured}.IsOn(cluster)
}

// memory is what is remembered of the Clusters, by UID.
type memory struct {
	mutex sync.Mutex
	// news are the digests of the last reports, because a cache that is behind shows the old condition once more. After a
	// crash, the condition itself shows it.
	news map[types.UID]string
	// states are the states of all Clusters that have the condition, for metrics. After a crash, the first pass over each
	// Cluster finds its state again.
	states map[types.UID]clusterState
}

// maxNews is how many digests are remembered. Beyond that the map is cleared.
const maxNews = 100_000

// isNew remembers a digest of findings, and reports whether the one before differs. changed is the answer about a
// Cluster that is not remembered.
func (m *memory) isNew(uid types.UID, digest string, changed bool) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	before, known := m.news[uid]
	if m.news == nil || len(m.news) >= maxNews {
		m.news = map[types.UID]string{}
	}
	m.news[uid] = digest
	return known && before != digest || !known && changed
}

// forgetState forgets the state of a Cluster that has no condition any more.
func (m *memory) forgetState(uid types.UID) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.states, uid)
}

// missingDelay is when to look again for a proxy Secret that does not exist: one that is created without
// contract.LabelProxySecret, the commonest slip, brings no event. All Clusters without a Secret together look ten
// times a second, so that they do not take the requests of others.
func (m *memory) missingDelay() time.Duration {
	const least, each = 10 * time.Second, time.Second / 10
	m.mutex.Lock()
	defer m.mutex.Unlock()
	missing := 0
	for _, state := range m.states {
		if state.reason == contract.ReasonSettingsNotFound {
			missing++
		}
	}
	return max(least, time.Duration(missing)*each)
}

func (m *memory) forget(uid types.UID) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.news, uid)
	delete(m.states, uid)
}

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

// Actions of events.
const (
	actionInject   = "Inject"
	actionRemove   = "Remove"
	actionReport   = "Report"
	actionRollOut  = "RollOut"
	actionValidate = "Validate"
)

// A pass over a Cluster emits one event: about its condition if that is news, with the changes before it, else about
// the changes. The note goes through "%s", because names and messages may contain a percent sign.

// maxObjects is the largest number of objects that an event names for each kind of change.
const maxObjects = 5

// changed emits the event that the proxy was added to objects, or removed from them, if it was.
func (r *Reporter) changed(cluster runtime.Object, changes changes) {
	reason, action := contract.EventSettingsInjected, actionInject
	if len(changes.added) == 0 {
		reason, action = contract.EventSettingsRemoved, actionRemove
	}
	if note := changes.String(); note != "" {
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeNormal, reason, action, "%s", note)
	}
}

// changes are the objects to which the proxy was added, and from which it was removed.
type changes struct{ added, removed []string }

// changesOf returns what a pass has changed.
func changesOf(done Result) (all changes) {
	for _, o := range slices.Concat(done.Reconciled, done.others) {
		switch o.Change {
		case Added:
			all.added = append(all.added, o.String())
		case Removed:
			all.removed = append(all.removed, o.String())
		case Unchanged:
		}
	}
	return all
}

// String describes the changes; "" if there are none.
func (c changes) String() string {
	var parts []string
	for _, change := range []struct {
		what    string
		objects []string
	}{{"Added the proxy to ", c.added}, {"Removed the proxy from ", c.removed}} {
		if len(change.objects) == 0 {
			continue
		}
		named := change.objects[:min(len(change.objects), maxObjects)]
		part := change.what + strings.Join(named, ", ")
		if more := len(change.objects) - len(named); more > 0 {
			part += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ". ")
}

// RolloutStarted emits the event that the Machines of an object are replaced.
func (r *Reporter) RolloutStarted(cluster, related runtime.Object, object string) {
	r.Recorder.Eventf(cluster, related, corev1.EventTypeNormal, contract.EventRolloutStarted, actionRollOut, "%s",
		"Set spec.rollout.after of "+object)
}

// reported emits the event of a condition, after changes if they are not "".
func (r *Reporter) reported(cluster runtime.Object, condition finding.Condition, changes string) {
	event := finding.EventOf(condition).After(changes)
	action := actionReport
	if event.Reason == contract.EventInvalidSettings {
		action = actionValidate
	}
	r.Recorder.Eventf(cluster, nil, event.Type, event.Reason, action, "%s", event.Note)
}

// gone emits the event that the condition is removed, after changes if they are not "".
func (r *Reporter) gone(cluster runtime.Object, changes string) {
	event := finding.Event{
		Type: corev1.EventTypeNormal, Reason: contract.EventNotConfigured,
		Note: "Removed everything that this product added",
	}
	r.Recorder.Eventf(cluster, nil, event.Type, event.Reason, actionReport, "%s", event.After(changes).Note)
}
