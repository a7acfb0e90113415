package world

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// many is the number of Clusters of one change from which on they come after all others in the queue.
const many = 10

// EnqueueMany is handler.EnqueueRequestsFromMapFunc for objects that many Clusters share: these come after Clusters
// that are new or have changed themselves.
func EnqueueMany(clusters handler.MapFunc) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, q queue, object client.Object) {
		requests := clusters(ctx, object)
		ordered, hasPriorities := q.(priorityqueue.PriorityQueue[reconcile.Request])
		if hasPriorities && len(requests) > many {
			ordered.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, requests...)
			return
		}
		for _, request := range requests {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
	}
}
