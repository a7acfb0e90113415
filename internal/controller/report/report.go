// Package report reports the state of a Cluster in one condition, and news in one event and one log line.
package report

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
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

// Report writes findings into the condition of a Cluster, or summary if none of them has a reason, and emits the event
// of the pass.
func (r *Reporter) Report(ctx context.Context, cluster *clusterv1.Cluster, out Outcome, summary string) error {
	found := finding.ConditionOf(out.Findings, summary)
	if out.Holds && HasCondition(cluster) {
		r.changed(cluster, out)
		return nil
	}
	r.memory.note(cluster, found, out)
	changed, err := r.condition().Set(ctx, cluster, found)
	if err == nil {
		err = r.record(ctx, cluster, out.Behind)
	}
	if err != nil || !r.memory.isNew(cluster.UID, finding.Digest(out.Findings), changed) {
		r.changed(cluster, out)
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Reporting", "status", found.Status, "reason", found.Reason, "message", found.Message)
	r.reported(cluster, found, out.changes())
	return nil
}

// condition is the condition that r writes.
func (r *Reporter) condition() Condition {
	return Condition{Client: r.Client, Now: r.Now, Type: contract.ConditionProxyConfigured, Owner: contract.Name}
}

// Remove removes the condition from a Cluster, and emits the event of the pass.
func (r *Reporter) Remove(ctx context.Context, cluster *clusterv1.Cluster, out Outcome) error {
	r.memory.forgetState(cluster.UID)
	err := r.record(ctx, cluster, &[]status.Group{})
	if err == nil {
		err = r.condition().Remove(ctx, cluster)
	}
	if err != nil || !HasCondition(cluster) || !r.memory.isNew(cluster.UID, "", true) {
		r.changed(cluster, out)
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Reporting that the proxy is removed")
	r.gone(cluster, out.changes())
	return nil
}

// record writes the counts of a pass into the annotation of a Cluster, if they differ. nil is that they are not known.
func (r *Reporter) record(ctx context.Context, cluster *clusterv1.Cluster, behind *[]status.Group) error {
	if behind == nil {
		return nil
	}
	text := status.Record(*behind)
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

// Changed emits the event of a pass that has nothing to report.
func (r *Reporter) Changed(cluster *clusterv1.Cluster, out Outcome) { r.changed(cluster, out) }

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
	states map[types.UID]state
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

func (m *memory) forget(uid types.UID) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.news, uid)
	delete(m.states, uid)
}
