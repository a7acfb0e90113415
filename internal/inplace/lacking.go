package workload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// lackingTime is for how long a node that has a version may have no Pod until events are read, and until they are read
// again.
const lackingTime = time.Minute

// lacking are the nodes of a Cluster without a Pod. A restart loses them, and the events are read a minute later.
type lacking struct {
	// since is since when a node has a version and no Pod.
	since map[grant]time.Time
	// asked is when events were read, and refused what they say.
	asked   time.Time
	refused map[string]string
}

// grant is a node and its version.
type grant struct{ node, version string }

// refused returns why there is no Pod on nodes that lack one for a minute, as far as the workload cluster says that,
// and when to look again. It reads events at most once a minute.
func (f *Follower) refused(ctx context.Context, cluster client.ObjectKey, v View, nodes []string) (
	refused map[string]string, again time.Duration,
) {
	if len(nodes) == 0 {
		f.lacking.Delete(cluster)
		return nil, 0
	}
	stored, _ := f.lacking.Get(cluster)
	last, _ := stored.(lacking)
	now := lacking{since: map[grant]time.Time{}, asked: last.asked, refused: last.refused}
	versions := map[string]string{} // of the nodes that have waited for long
	for _, name := range nodes {
		at := grant{name, v.Nodes[name].Version}
		since, known := last.since[at]
		if !known {
			since = v.Now
		}
		now.since[at] = since
		if left := since.Add(lackingTime).Sub(v.Now); left > 0 {
			if again == 0 || left < again {
				again = left
			}
			continue
		}
		versions[name] = at.version
	}
	defer func() { f.lacking.Set(cluster, now, nodeMemory) }()
	if len(versions) == 0 {
		return nil, again
	}
	if left := last.asked.Add(lackingTime).Sub(v.Now); left > 0 {
		return last.refused, left
	}
	now.asked, now.refused = v.Now, map[string]string{}
	remote, closeConnection, err := f.Connect(ctx, cluster)
	if err != nil {
		return nil, lackingTime // the next pass says so
	}
	defer closeConnection()
	texts := map[string]string{}
	for name, version := range versions {
		if _, read := texts[version]; !read {
			if texts[version], err = newestEvent(ctx, remote, version); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Reading why there is no Pod", "workloadCluster", cluster)
			}
		}
		now.refused[name] = texts[version]
	}
	return now.refused, lackingTime
}

// newestEvent returns the newest warning about the DaemonSet of a version, "" if there is none. A workload cluster can
// write anything.
func newestEvent(ctx context.Context, remote client.Reader, version string) (string, error) {
	var events corev1.EventList
	err := remote.List(ctx, &events, client.InNamespace(contract.NodesNamespace), client.Limit(pageSize),
		client.MatchingFields{"involvedObject.kind": "DaemonSet", "involvedObject.name": version})
	if err != nil {
		return "", fmt.Errorf("listing Events: %w", err)
	}
	text, newest := "", time.Time{}
	for i := range events.Items {
		event := &events.Items[i]
		at := event.CreationTimestamp.Time
		for _, later := range []time.Time{event.EventTime.Time, event.LastTimestamp.Time} {
			if later.After(at) {
				at = later
			}
		}
		if event.Type == corev1.EventTypeWarning && !at.Before(newest) {
			newest, text = at, finding.Line(event.Reason+": "+event.Message, maxFailure)
		}
	}
	return text, nil
}
