package caches

import (
	"strings"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/slim"
)

// handler remembers the objects of its last event.
type handler struct{ before, now any }

func (h *handler) OnAdd(object any, _ bool) { h.before, h.now = nil, object }
func (h *handler) OnUpdate(before, now any) { h.before, h.now = before, now }
func (h *handler) OnDelete(object any)      { h.before, h.now = nil, object }

func keptCluster(name string) *slim.Cluster {
	c := &slim.Cluster{Spec: &clusterv1.ClusterSpec{Paused: new(true)}}
	c.SetName(name)
	c.SetLabels(map[string]string{"a": "%"})
	c.Keep()
	return c
}

// TestHandlers_SeeWholeObjects covers the deletion that a watch has missed, too.
func TestHandlers_SeeWholeObjects(t *testing.T) {
	t.Parallel()
	k, ok := (&slimmed{kinds: kinds()}).kindOf(&clusterv1.Cluster{})
	if !ok {
		t.Fatal("Clusters are not kept")
	}
	seen := &handler{}
	e := events{seen, informer{whole: k.whole}}
	name := func(object any) string {
		cluster, ok := object.(*clusterv1.Cluster)
		if !ok || cluster.Spec.Paused == nil || cluster.Labels["a"] != "%" {
			t.Fatalf("a handler got %#v", object)
		}
		return cluster.Name
	}
	if e.OnAdd(keptCluster("added"), false); name(seen.now) != "added" {
		t.Errorf("added: %s", name(seen.now))
	}
	if e.OnUpdate(keptCluster("one"), keptCluster("two")); name(seen.before) != "one" || name(seen.now) != "two" {
		t.Errorf("updated: %s, %s", name(seen.before), name(seen.now))
	}
	same := keptCluster("same")
	if e.OnUpdate(same, same); name(seen.before) != "same" || seen.before != seen.now {
		t.Errorf("resync: %s, %s", name(seen.before), name(seen.now))
	}
	if e.OnDelete(keptCluster("gone")); name(seen.now) != "gone" {
		t.Errorf("deleted: %s", name(seen.now))
	}
	e.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "ns/missed", Obj: keptCluster("missed")})
	if missed, ok := seen.now.(toolscache.DeletedFinalStateUnknown); !ok || missed.Key != "ns/missed" || name(missed.Obj) != "missed" {
		t.Errorf("deleted meanwhile: %#v", seen.now)
	}
}

// TestIndex_IsNotAskedForAllNamespaces holds readers to a namespace: nothing would be found without one.
func TestIndex_IsNotAskedForAllNamespaces(t *testing.T) {
	t.Parallel()
	err := (&slimmed{}).List(t.Context(), &clusterv1.ClusterList{}, client.MatchingFields{IndexSecret: "corp"})
	if err == nil || !strings.Contains(err.Error(), "use client.InNamespace") {
		t.Errorf("got %v", err)
	}
}
