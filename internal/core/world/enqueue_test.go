package world_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// queue records what it is given: requests of low priority after "later".
type queue struct {
	priorityqueue.PriorityQueue[ctrl.Request]

	added []string
}

func (q *queue) Add(request ctrl.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }

func (q *queue) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	if o.Priority != nil && *o.Priority == handler.LowPriority {
		q.added = append(q.added, fmt.Sprint("later ", len(requests)))
		return
	}
	for _, request := range requests {
		q.added = append(q.added, request.Name)
	}
}

func TestEnqueueMany_PutsManyClustersAfterAllOthers(t *testing.T) {
	t.Parallel()
	secret := func(name string) *corev1.Secret { return &corev1.Secret{ObjectMeta: named("", name)} }
	request := func(name string) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: "team", Name: name}}}
	}
	h := world.EnqueueMany(func(_ context.Context, s client.Object) []ctrl.Request {
		if s.GetName() != "shared" {
			return request(s.GetName())
		}
		return slices.Repeat(request("x"), 11)
	})
	q := &queue{}
	h.Create(t.Context(), event.CreateEvent{Object: secret("created")}, q)
	changed := secret("new")
	changed.ResourceVersion = "2" // one of the same version is a resync, which comes later by itself
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: secret("old"), ObjectNew: changed}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: secret("deleted")}, q)
	h.Create(t.Context(), event.CreateEvent{Object: secret("shared")}, q)
	want := []string{"created", "new", "deleted", "later 11"}
	if diff := cmp.Diff(want, q.added); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
}
