// Package passes keeps the controller from reconciling a Cluster again because of its own writes or without need at a
// resync, and gives new Clusters precedence over a change that concerns many.
package passes

import (
	"bytes"
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Passes remembers the last pass over each Cluster, so that the events of the controller's own writes cause no further
// pass. That is safe only until a later pass begins: it may have read a cache without the write, and waits for the
// event.
type Passes struct {
	// Resyncs is after how many resyncs a steady Cluster is reconciled; 0 is at each.
	Resyncs uint32

	mutex sync.Mutex
	last  map[types.NamespacedName]*Pass
}

// Pass is one pass over a Cluster.
type Pass struct {
	passes  *Passes
	running bool
	// complete reports that it has done everything, steady that events bring whatever can change its result.
	complete, steady bool
	// resyncs counts them. It begins with the hash of a name, so that not all steady Clusters are due at the same one.
	resyncs uint32
	// wrote are the versions that it has written and whose events have not arrived yet, by UID. Of a Cluster it may write
	// two: the condition and the record.
	wrote map[types.UID][]string
	// seen are the versions whose events arrived during the pass: an event may be faster than the response to the
	// write.
	seen []version
}

// version is an object at one time.
type version struct {
	uid     types.UID
	version string
}

type passKey struct{}

// Begin begins a pass. Writes are recorded in the context that it returns.
func (p *Passes) Begin(ctx context.Context, cluster types.NamespacedName) (context.Context, *Pass) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.last == nil {
		p.last = map[types.NamespacedName]*Pass{}
	}
	one := &Pass{passes: p, running: true}
	if last := p.last[cluster]; last != nil {
		one.resyncs = last.resyncs
	} else {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(cluster.Name))
		one.resyncs = hash.Sum32()
	}
	p.last[cluster] = one
	return context.WithValue(ctx, passKey{}, one), one
}

// End ends the pass, and reports whether the events that arrived meanwhile require another one. The writes of an
// incomplete pass are not remembered.
func (one *Pass) End() (again bool) {
	one.passes.mutex.Lock()
	defer one.passes.mutex.Unlock()
	if !one.complete {
		one.wrote = nil
	}
	for _, seen := range one.seen {
		if !one.arrived(seen) {
			again = true
		}
	}
	one.running, one.seen = false, nil
	return again
}

// Complete records that the pass of ctx has done everything. It is steady if everything that it has read is watched, so
// that a resync brings nothing new.
func Complete(ctx context.Context, steady bool) {
	if one, _ := ctx.Value(passKey{}).(*Pass); one != nil {
		one.complete, one.steady = true, steady
	}
}

// isDue reports whether a resync requires a pass over a Cluster.
func (p *Passes) isDue(cluster types.NamespacedName) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	one := p.last[cluster]
	if one == nil {
		return true
	}
	one.resyncs++
	return one.running || !one.steady || one.resyncs%max(p.Resyncs, 1) == 0
}

// Wrote records that the pass of ctx, if there is one, has written object.
func Wrote(ctx context.Context, object client.Object) {
	one, _ := ctx.Value(passKey{}).(*Pass)
	if one == nil {
		return
	}
	one.passes.mutex.Lock()
	defer one.passes.mutex.Unlock()
	if one.wrote == nil {
		one.wrote = map[types.UID][]string{}
	}
	one.wrote[object.GetUID()] = append(one.wrote[object.GetUID()], object.GetResourceVersion())
}

// arrived reports whether the pass has written a version, whose event has arrived. A watch may skip versions: those
// that were written before it are not waited for any more.
func (one *Pass) arrived(v version) bool {
	at := slices.Index(one.wrote[v.uid], v.version)
	if at < 0 {
		return false
	}
	if one.wrote[v.uid] = one.wrote[v.uid][at+1:]; len(one.wrote[v.uid]) == 0 {
		delete(one.wrote, v.uid)
	}
	return true
}

// knows reports whether an event of an object requires no pass over a Cluster: the last pass wrote it, or is running
// and records the event.
func (p *Passes) knows(cluster types.NamespacedName, object client.Object) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	one := p.last[cluster]
	switch {
	case one == nil:
		return false
	case one.running:
		one.seen = append(one.seen, version{object.GetUID(), object.GetResourceVersion()})
		return true
	}
	return one.arrived(version{object.GetUID(), object.GetResourceVersion()})
}

func (p *Passes) forget(cluster types.NamespacedName) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.last, cluster)
}

// OfOthers filters out the events of a Cluster that the last pass over it has caused, and the resyncs that it does not
// need. It calls deleted for a Cluster that is gone.
func (p *Passes) OfOthers(deleted func(client.Object)) predicate.Funcs {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, now := e.ObjectOld, e.ObjectNew
			if before.GetResourceVersion() == now.GetResourceVersion() {
				return p.isDue(client.ObjectKeyFromObject(now))
			}
			// A condition is applied to any version: after an interruption of the watch, one event may include another
			// change.
			same := before.GetGeneration() == now.GetGeneration() &&
				before.GetDeletionTimestamp().Equal(now.GetDeletionTimestamp()) &&
				maps.Equal(before.GetLabels(), now.GetLabels()) &&
				maps.Equal(withoutRecords(before.GetAnnotations()), withoutRecords(now.GetAnnotations()))
			return !same || !p.knows(client.ObjectKeyFromObject(now), now)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			p.forget(client.ObjectKeyFromObject(e.Object))
			deleted(e.Object)
			return true
		},
	}
}

// withoutRecords returns annotations without those that a pass writes to a Cluster, and that no decision reads.
func withoutRecords(annotations map[string]string) map[string]string {
	annotations = maps.Clone(annotations)
	delete(annotations, contract.AnnotationMachinesBehind)
	delete(annotations, contract.AnnotationLastPass)
	return annotations
}

// Enqueue is the handler that enqueues the Clusters of an object, except one whose last pass wrote it.
func (p *Passes) Enqueue(clusters handler.MapFunc) handler.Funcs {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, q queue, now client.Object, known bool, objects ...client.Object) {
		done := map[reconcile.Request]bool{}
		for _, object := range objects {
			for _, request := range clusters(ctx, object) {
				if !done[request] && (!known || !p.knows(request.NamespacedName, now)) {
					q.Add(request)
				}
				done[request] = true
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object, true, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			add(ctx, q, e.ObjectNew, true, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object, false, e.Object) },
	}
}

// EnqueueContent is the handler that enqueues the Clusters of a Secret when its content changes. Writing the same bytes
// again enqueues nothing.
func EnqueueContent(clusters handler.TypedMapFunc[*corev1.Secret,
	reconcile.Request],
) handler.TypedEventHandler[*corev1.Secret, reconcile.Request] {
	return enqueueSecret(clusters, func(before, now *corev1.Secret) bool {
		return !maps.EqualFunc(before.Data, now.Data, bytes.Equal)
	})
}

// EnqueueVersions is EnqueueContent for every new version, also one with the same content: a pass records which version
// it has used.
func EnqueueVersions(clusters handler.TypedMapFunc[*corev1.Secret,
	reconcile.Request],
) handler.TypedEventHandler[*corev1.Secret, reconcile.Request] {
	return enqueueSecret(clusters, func(before, now *corev1.Secret) bool {
		return before.ResourceVersion != now.ResourceVersion
	})
}

// enqueueSecret enqueues the Clusters of a Secret when it is created, deleted or differs.
func enqueueSecret(clusters handler.TypedMapFunc[*corev1.Secret, reconcile.Request],
	differs func(before, now *corev1.Secret) bool,
) handler.TypedEventHandler[*corev1.Secret, reconcile.Request] {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.TypedFuncs[*corev1.Secret, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Secret], q queue) {
			fanOut(q, clusters(ctx, e.Object))
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Secret], q queue) {
			if differs(e.ObjectOld, e.ObjectNew) {
				fanOut(q, clusters(ctx, e.ObjectNew))
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Secret], q queue) {
			fanOut(q, clusters(ctx, e.Object))
		},
	}
}

// SinceStart filters out the events of objects that exist when the process starts: the first pass over each Cluster,
// which has such an event of its own, reads them anyway.
func SinceStart[T any]() predicate.TypedFuncs[T] {
	return predicate.TypedFuncs[T]{
		CreateFunc: func(e event.TypedCreateEvent[T]) bool { return !e.IsInInitialList },
	}
}

// EnqueueExistence returns the handler that enqueues the Clusters of a Secret when it is created or deleted.
func EnqueueExistence(clusters handler.TypedMapFunc[*metav1.PartialObjectMetadata, reconcile.Request],
) handler.TypedEventHandler[*metav1.PartialObjectMetadata, reconcile.Request] {
	type metadata = *metav1.PartialObjectMetadata
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.TypedFuncs[metadata, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[metadata], q queue) {
			fanOut(q, clusters(ctx, e.Object))
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[metadata], q queue) {
			fanOut(q, clusters(ctx, e.Object))
		},
	}
}

// many is the number of Clusters from which on those of one change wait for all others.
const many = 10

// fanOut enqueues the Clusters of a change. If they are many, they come after Clusters that are new or have changed
// themselves.
func fanOut(q workqueue.TypedRateLimitingInterface[reconcile.Request], requests []reconcile.Request) {
	queue, hasPriorities := q.(priorityqueue.PriorityQueue[reconcile.Request])
	if !hasPriorities || len(requests) <= many {
		for _, request := range requests {
			q.Add(request)
		}
		return
	}
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, requests...)
}
