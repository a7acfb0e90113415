package passes

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// at is a Secret at a version.
func at(version string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s", UID: "uid", ResourceVersion: version}}
}

// end ends a pass that has done all.
func end(ctx context.Context, one *Pass) bool {
	Complete(ctx, false)
	return one.End()
}

func requestFor(name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "a", Name: name}}}
}

// TestPasses_KnowOnlyWhatTheLastPassHasWritten follows one event after the other.
func TestPasses_KnowOnlyWhatTheLastPassHasWritten(t *testing.T) {
	t.Parallel()
	cluster, other := types.NamespacedName{Namespace: "a", Name: "a"}, types.NamespacedName{Namespace: "a", Name: "b"}
	for name, row := range map[string]struct {
		do   func(p *Passes) (bool, bool)
		want bool
	}{
		"nobody has looked yet": {func(p *Passes) (bool, bool) { return p.knows(cluster, at("5")), true }, false},
		"its own write": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			Wrote(ctx, at("5"))
			again := end(ctx, one)
			return p.knows(cluster, at("5")), !again
		}, true},
		"its own write twice": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			Wrote(ctx, at("5"))
			end(ctx, one)
			first := p.knows(cluster, at("5"))
			return first && p.knows(cluster, at("5")), true
		}, false},
		"somebody's write on top": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			Wrote(ctx, at("5"))
			end(ctx, one)
			return p.knows(cluster, at("6")), true
		}, false},
		"its own write, but another pass has begun": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			Wrote(ctx, at("5"))
			end(ctx, one)
			ctx, two := p.Begin(t.Context(), cluster)
			end(ctx, two)
			return p.knows(cluster, at("5")), true
		}, false},
		"its own write, but it has not done all": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			Wrote(ctx, at("5"))
			again := one.End()
			return p.knows(cluster, at("5")), !again
		}, false},
		"a write of another Cluster's pass": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), other)
			Wrote(ctx, at("5"))
			end(ctx, one)
			ctx, two := p.Begin(t.Context(), cluster)
			end(ctx, two)
			return p.knows(cluster, at("5")), true
		}, false},
		"the event is faster than the answer": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			known := p.knows(cluster, at("5"))
			Wrote(ctx, at("5"))
			return known, !end(ctx, one)
		}, true},
		"somebody's write meanwhile": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			known := p.knows(cluster, at("4"))
			Wrote(ctx, at("5"))
			return known, end(ctx, one) // and another pass is asked for
		}, true},
		"the event of an earlier pass's write meanwhile": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			Wrote(ctx, at("5"))
			end(ctx, one)
			ctx, two := p.Begin(t.Context(), cluster)
			known := p.knows(cluster, at("5"))
			return known, end(ctx, two)
		}, true},
		"a Cluster that is gone": {func(p *Passes) (bool, bool) {
			ctx, one := p.Begin(t.Context(), cluster)
			Wrote(ctx, at("5"))
			end(ctx, one)
			p.forget(cluster)
			return p.knows(cluster, at("5")), true
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, end := row.do(&Passes{}); got != row.want || !end {
				t.Errorf("known %t, want %t; the end of the pass was as it should be: %t", got, row.want, end)
			}
		})
	}
}

// TestPasses_LetChangesThroughThatComeWithTheirOwn has one event bring a write of the controller and one of somebody
// else, as after a break of the watch.
func TestPasses_LetChangesThroughThatComeWithTheirOwn(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*clusterv1.Cluster)
		want   bool
	}{
		"nothing else": {func(*clusterv1.Cluster) {}, false},
		"a resync":     {func(c *clusterv1.Cluster) { c.ResourceVersion = "4" }, true},
		"a label":      {func(c *clusterv1.Cluster) { c.Labels = map[string]string{"a": "b"} }, true},
		"a spec":       {func(c *clusterv1.Cluster) { c.Generation = 2 }, true},
		"an annotation": {func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{"a": "b"}
		}, true},
		"our records": {func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{contract.AnnotationLastPass: "{}", contract.AnnotationMachinesBehind: "[]"}
		}, false},
		"a forged record": {func(c *clusterv1.Cluster) {
			c.Annotations, c.ResourceVersion = map[string]string{contract.AnnotationLastPass: "{}"}, "7"
		}, true},
		"a deletion": {func(c *clusterv1.Cluster) { c.DeletionTimestamp = new(metav1.Unix(1, 0)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Passes{}
			before := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "a", Name: "a", UID: "u",
				ResourceVersion: "4", Generation: 1,
			}}
			now := before.DeepCopy()
			now.ResourceVersion = "6"
			ctx, one := p.Begin(t.Context(), client.ObjectKeyFromObject(now))
			Wrote(ctx, now)
			end(ctx, one)
			row.change(now)
			if got := p.OfOthers(nil).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now}); got != row.want {
				t.Errorf("got %t, want %t", got, row.want)
			}
		})
	}
}

// TestPasses_KnowEachOfTheirWrites has a pass write the condition and the record of a Cluster. Events of a watch come in
// order, and may leave out versions.
func TestPasses_KnowEachOfTheirWrites(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		during, after []string
		again         bool
		want          []bool // whether an event after the pass brings another one
	}{
		"both after it":              {nil, []string{"5", "6", "7"}, false, []bool{false, false, true}},
		"both during it":             {[]string{"5", "6"}, []string{"6"}, false, []bool{true}},
		"one during it":              {[]string{"5"}, []string{"6", "6"}, false, []bool{false, true}},
		"only the last one":          {nil, []string{"6", "5"}, false, []bool{false, true}},
		"somebody else's among ours": {[]string{"5", "4", "6"}, nil, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Passes{}
			update := func(version string) bool {
				before := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "a", UID: "u", ResourceVersion: "1"}}
				now := before.DeepCopy()
				now.ResourceVersion = version
				return p.OfOthers(nil).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now})
			}
			ctx, one := p.Begin(t.Context(), types.NamespacedName{Namespace: "a", Name: "a"})
			for _, version := range []string{"5", "6"} {
				Wrote(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: version}})
			}
			for _, version := range row.during {
				update(version)
			}
			if again := end(ctx, one); again != row.again {
				t.Errorf("another pass: %t, want %t", again, row.again)
			}
			for i, version := range row.after {
				if got := update(version); got != row.want[i] {
					t.Errorf("event %d, version %s: %t, want %t", i, version, got, row.want[i])
				}
			}
		})
	}
}

// TestPasses_SkipResyncsOfSteadyClusters counts the passes that twelve resyncs bring over a Cluster, with three as the
// interval of a steady one.
func TestPasses_SkipResyncsOfSteadyClusters(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		end  func(ctx context.Context, one *Pass)
		want int
	}{
		"everything is watched": {func(ctx context.Context, one *Pass) { Complete(ctx, true); one.End() }, 4},
		"something is not":      {func(ctx context.Context, one *Pass) { Complete(ctx, false); one.End() }, 12},
		"it has not done all":   {func(_ context.Context, one *Pass) { one.End() }, 12},
		"it does not end":       {func(ctx context.Context, _ *Pass) { Complete(ctx, true) }, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, got := &Passes{Resyncs: 3}, 0
			cluster := at("1")
			filter := p.OfOthers(nil)
			pass := func() {
				ctx, one := p.Begin(t.Context(), client.ObjectKeyFromObject(cluster))
				row.end(ctx, one)
			}
			if !filter.Update(event.UpdateEvent{ObjectOld: cluster, ObjectNew: cluster}) {
				t.Error("a resync before the first pass brings none")
			}
			pass()
			for range 12 {
				if filter.Update(event.UpdateEvent{ObjectOld: cluster, ObjectNew: cluster}) {
					got++
					pass()
				}
			}
			if got != row.want {
				t.Errorf("%d passes, want %d", got, row.want)
			}
		})
	}
}

// TestPasses_DistributeSteadyClusters has many Clusters that were reconciled at the same time wait for ten resyncs.
func TestPasses_DistributeSteadyClusters(t *testing.T) {
	t.Parallel()
	p := &Passes{Resyncs: 10}
	filter := p.OfOthers(nil)
	var clusters []*corev1.Secret
	for i := range 1000 {
		one := at("1")
		one.Name = fmt.Sprintf("cluster-%d", i)
		clusters = append(clusters, one)
	}
	pass := func(cluster client.Object) {
		ctx, one := p.Begin(t.Context(), client.ObjectKeyFromObject(cluster))
		Complete(ctx, true)
		one.End()
	}
	for _, cluster := range clusters {
		pass(cluster)
	}
	reconciled := map[string]int{}
	for i := range 20 {
		due := 0
		for _, cluster := range clusters {
			if filter.Update(event.UpdateEvent{ObjectOld: cluster, ObjectNew: cluster}) {
				pass(cluster)
				due++
				reconciled[cluster.Name]++
			}
		}
		if due < 50 || due > 150 {
			t.Errorf("resync %d: %d of 1,000", i, due)
		}
	}
	for _, cluster := range clusters {
		if reconciled[cluster.Name] != 2 {
			t.Errorf("%s: %d passes in 20 resyncs", cluster.Name, reconciled[cluster.Name])
		}
	}
}

// TestFanOut_ComesAfterWhatIsNew adds many Clusters and then one more.
func TestFanOut_ComesAfterWhatIsNew(t *testing.T) {
	t.Parallel()
	queue := priorityqueue.New[reconcile.Request]("test")
	defer queue.ShutDown()
	var all []reconcile.Request
	for i := range many + 1 {
		all = append(all, requestFor(fmt.Sprintf("old-%d", i))...)
	}
	fanOut(queue, all)
	newcomer := requestFor("new")[0]
	(&Passes{}).Enqueue(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{newcomer} }).
		Create(t.Context(), event.CreateEvent{Object: at("1")}, queue)
	if first, _ := queue.Get(); first != newcomer {
		t.Errorf("%s comes first", first)
	}
}

// TestFanOut_OfFewDoesNotWait has a user change the proxy of one Cluster.
func TestFanOut_OfFewDoesNotWait(t *testing.T) {
	t.Parallel()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	fanOut(queue, requestFor("b"))
	if got, _ := queue.Get(); got.Name != "b" {
		t.Errorf("got %s", got)
	}
}

// TestEnqueueContent_LeavesTheSameBytesAlone writes a Secret again and again.
func TestEnqueueContent_LeavesTheSameBytesAlone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before, now map[string][]byte
		want        int
	}{
		"the same bytes":  {map[string][]byte{"a": []byte("%")}, map[string][]byte{"a": []byte("%")}, 0},
		"no bytes at all": {nil, map[string][]byte{}, 0},
		"other bytes":     {map[string][]byte{"a": []byte("%")}, map[string][]byte{"a": []byte("%%")}, 1},
		"another key":     {map[string][]byte{"a": {}}, map[string][]byte{"b": {}}, 1},
		"one key less":    {map[string][]byte{"a": {}}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			before, now := at("1"), at("2")
			before.Data, now.Data = row.before, row.now
			EnqueueContent(func(context.Context, *corev1.Secret) []reconcile.Request { return requestFor("b") }).
				Update(t.Context(), event.TypedUpdateEvent[*corev1.Secret]{ObjectOld: before, ObjectNew: now}, queue)
			if got := queue.Len(); got != row.want {
				t.Errorf("%d Clusters, want %d", got, row.want)
			}
		})
	}
}

// TestEnqueueVersions_LeavesOutWhatIsNoChange: a pass records the version of a Secret, also one with the same content.
func TestEnqueueVersions_LeavesOutWhatIsNoChange(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]int{"1": 0, "2": 1} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		EnqueueVersions(func(context.Context, *corev1.Secret) []reconcile.Request { return requestFor("b") }).
			Update(t.Context(), event.TypedUpdateEvent[*corev1.Secret]{ObjectOld: at("1"), ObjectNew: at(now)}, queue)
		if got := queue.Len(); got != want {
			t.Errorf("version %s: %d Clusters, want %d", now, got, want)
		}
		queue.ShutDown()
	}
}

// TestSinceStart_LeavesOutWhatWasThere is the restart of a manager.
func TestSinceStart_LeavesOutWhatWasThere(t *testing.T) {
	t.Parallel()
	filter := SinceStart[*corev1.Secret]()
	created := event.TypedCreateEvent[*corev1.Secret]{Object: at("1")}
	if !filter.Create(created) {
		t.Error("a new Secret brings no pass")
	}
	if created.IsInInitialList = true; filter.Create(created) {
		t.Error("a Secret that was there brings a pass")
	}
	if !filter.Update(event.TypedUpdateEvent[*corev1.Secret]{ObjectOld: at("1"), ObjectNew: at("2")}) ||
		!filter.Delete(event.TypedDeleteEvent[*corev1.Secret]{Object: at("2")}) {
		t.Error("a change or a deletion brings no pass")
	}
}

func TestOfOthers_TellsOfDeletedClusters(t *testing.T) {
	t.Parallel()
	var p Passes
	var gone []string
	filter := p.OfOthers(func(cluster client.Object) { gone = append(gone, cluster.GetName()) })
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one"}}
	if !filter.Delete(event.DeleteEvent{Object: cluster}) || len(gone) != 1 || gone[0] != "one" {
		t.Errorf("gone %v", gone)
	}
}
