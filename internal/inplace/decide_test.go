package inplace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	main  = "prod-proxy-files"
	gpu   = "prod-gpu.proxy-files"
	fresh = main + "-0123456789"
	stale = main + "-9876543210"
)

// machine is a member whose names begin with that of its node.
func machine(node, secret string) Member {
	return Member{Node: node, Secret: secret, Machine: node + "-machine", Config: node + "-config"}
}

// labelled are nodes with a label, by name.
func labelled(label string, names ...string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		all[name] = label
	}
	return all
}

// runs is a Pod that has applied a version, and fails one that has not.
func runs(node, version string) Pod {
	return Pod{Name: "p-" + node, Node: node, Version: version, Runs: true}
}

func fails(node, why string) Pod {
	return Pod{Name: "p-" + node, Node: node, Version: fresh, Failure: why}
}

func slot(number, holder, failure string) Slot {
	return Slot{Name: agent.SlotPrefix + number, Holder: holder, Since: noon, Failure: failure}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const of3, progressing = "of 3 nodes have the current files of Secret prod-proxy-files", ReasonInPlaceProgressing
	three := []Member{machine("a", main), machine("b", main), machine("c", main)}
	all := labelled(main, "a", "b", "c")
	known := []Want{{main, fresh}}
	for name, test := range map[string]struct {
		view    View
		labels  map[string]string
		free    []string
		current string // the nodes
		reason  string
		message string // of the condition
		removed bool
	}{
		"nobody":             {view: View{Wants: known}},
		"a node that is new": {view: View{Wants: known, Members: three[:1], Nodes: labelled("", "a")}, labels: map[string]string{"a": main}, reason: progressing, message: "0 of 1 nodes have the current files of Secret prod-proxy-files; waiting for a"},
		"all have the files": {view: View{Wants: known, Members: three, Nodes: all, Pods: []Pod{runs("a", fresh), runs("b", fresh), runs("c", fresh)}, Slots: []Slot{slot("0", "", "")}}, current: "abc"},
		"one has the files":  {view: View{Wants: known, Members: three, Nodes: all, Pods: []Pod{runs("a", fresh), runs("b", stale)}}, current: "a", reason: progressing, message: "1 " + of3 + "; waiting for b, c"},
		"one of two Pods":    {view: View{Wants: known, Members: three[:1], Nodes: all, Pods: []Pod{runs("a", fresh), runs("a", stale)}}, labels: map[string]string{"b": "", "c": ""}, current: "a"},
		"a turn":             {view: View{Wants: known, Members: three, Nodes: all, Pods: []Pod{runs("a", fresh), runs("c", stale)}, Slots: []Slot{slot("0", "b", ""), slot("1", "", "")}}, current: "a", reason: progressing, message: "1 " + of3 + "; it is the turn of b since 2026-01-01T12:00:00Z; waiting for c"},
		"a turn that is not released, though the Pod runs": {
			view:    View{Wants: known, Members: three, Nodes: all, Pods: []Pod{runs("a", fresh), runs("b", fresh), runs("c", fresh)}, Slots: []Slot{slot("0", "b", "")}},
			current: "ac", reason: progressing, message: "2 " + of3 + "; it is the turn of b since 2026-01-01T12:00:00Z",
		},
		"a turn of a node of another pool": {
			view:    View{Wants: known, Members: append([]Member{machine("x", gpu)}, three...), Nodes: map[string]string{"a": main, "b": main, "c": main, "x": NodeLabel(gpu)}, Slots: []Slot{slot("0", "x", "")}},
			reason:  progressing,
			message: "0 " + of3 + "; it is the turn of x since 2026-01-01T12:00:00Z; waiting for a, b, c",
		},
		"a failure": {
			view:    View{Wants: known, Members: three, Nodes: all, Pods: []Pod{fails("b", "status 407"), runs("a", fresh)}, Slots: []Slot{slot("0", "b", "ignored")}},
			current: "a", reason: ReasonInPlaceFailed,
			message: "* node b: status 407; it keeps its turn since 2026-01-01T12:00:00Z, so that no other node fails; delete Pod kube-system/p-b to retry\n" +
				"* 1 " + of3 + ", and 1 failed; waiting for c",
		},
		"a failure that only the slot says, of a Pod that tries again": {
			view:    View{Wants: known, Members: three[:1], Nodes: labelled(main, "a"), Slots: []Slot{slot("0", "a", "status 407")}},
			reason:  ReasonInPlaceFailed,
			message: "* node a: status 407; it keeps its turn since 2026-01-01T12:00:00Z, so that no other node fails; correct the proxy Secret\n* 0 of 1 nodes have the current files of Secret prod-proxy-files, and 1 failed",
		},
		"a failure without a turn": {
			view:   View{Wants: known, Members: three[:1], Nodes: labelled(main, "a"), Pods: []Pod{fails("a", "/etc/x differs")}},
			reason: ReasonInPlaceFailed,
			message: "* node a: /etc/x differs; delete Pod kube-system/p-a to retry\n" +
				"* 0 of 1 nodes have the current files of Secret prod-proxy-files, and 1 failed",
		},
		"files that are not known": {
			view:   View{Wants: []Want{{main, ""}}, Members: three[:1], Nodes: labelled("", "a"), Pods: []Pod{runs("a", stale)}},
			reason: progressing, message: "0 of 1 nodes have the current files of Secret prod-proxy-files; its present files are not known; waiting for a",
		},
		"a node of another pool": {
			view:   View{Wants: []Want{{gpu, gpu + "-0123456789"}}, Members: []Member{machine("a", gpu)}, Nodes: labelled(main, "a"), Pods: []Pod{runs("a", fresh)}},
			labels: map[string]string{"a": gpu}, reason: progressing, message: "0 of 1 nodes have the current files of Secret prod-gpu.proxy-files; waiting for a",
		},
		"a node of none": {view: View{Wants: known, Members: three[:1], Nodes: all, Pods: []Pod{runs("a", fresh)}}, labels: map[string]string{"b": "", "c": ""}, current: "a"},
		"a node that boots may be any": {
			view:    View{Wants: known, Members: []Member{three[0], {Secret: main, Machine: "m"}}, Nodes: all, Pods: []Pod{runs("a", fresh)}},
			current: "a",
		},
		"a Machine that is being deleted": {
			view:    View{Wants: known, Members: []Member{three[0], {Node: "b", Secret: main, Machine: "m", Leaving: true}}, Nodes: labelled(main, "a", "b"), Pods: []Pod{runs("a", fresh)}},
			current: "a",
		},
		"slots of nodes that are gone, or not ours any more": {
			view:    View{Wants: known, Members: three[:1], Nodes: map[string]string{"a": main, "b": "", "c": main}, Pods: []Pod{runs("a", fresh)}, Slots: []Slot{slot("0", "gone", "x"), slot("1", "b", ""), slot("2", "c", "")}},
			labels:  map[string]string{"c": ""},
			free:    []string{agent.SlotPrefix + "0", agent.SlotPrefix + "1"}, // and c when its label is gone
			current: "a",
		},
		"a slot of a node whose Pod has not ended": {
			view: View{Wants: known, Nodes: labelled("", "b"), Pods: []Pod{runs("b", fresh)}, Slots: []Slot{slot("0", "b", "")}},
		},
		"a removal": {
			view:    View{Removes: true, Wants: known, Members: three, Nodes: all, Pods: []Pod{runs("a", fresh)}},
			current: "a", reason: progressing, message: "1 of 3 nodes are restored; waiting for b, c",
		},
		"a removal from nodes of no Machine, and from none that has nothing": {
			view:   View{Removes: true, Wants: known, Members: []Member{{Node: "a", Secret: main, Machine: "m", Plain: true}}, Nodes: map[string]string{"a": "", "b": main}},
			reason: progressing, message: "0 of 1 nodes are restored; waiting for b",
		},
		"a removal that has ended": {
			view:    View{Removes: true, Wants: known, Members: three[:1], Nodes: labelled(main, "a"), Pods: []Pod{runs("a", fresh)}},
			current: "a", removed: true,
		},
		"a removal from nobody": {view: View{Removes: true, Wants: known}, removed: true},
		"a removal from a node that boots": {
			view:   View{Removes: true, Wants: known, Members: []Member{{Secret: main, Machine: "m"}}, Nodes: labelled(main, "a")},
			reason: progressing, message: "0 of 1 nodes are restored; waiting for the node of Machine m",
		},
		"an end": {view: View{Nodes: all, Slots: []Slot{slot("0", "a", "")}}, labels: map[string]string{"a": "", "b": "", "c": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Decide(test.view)
			condition := finding.ConditionOf(got.Findings, "")
			if test.reason == "" {
				test.reason = contract.ReasonConfigured
			}
			if condition.Reason != test.reason || condition.Message != test.message || got.Changes != (test.message != "") ||
				got.Removed != test.removed {
				t.Errorf("%+v, changes %v, removed %v", condition, got.Changes, got.Removed)
			}
			if test.labels == nil {
				test.labels = map[string]string{}
			}
			if diff := cmp.Diff(test.labels, got.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			current, free := "", []string(nil)
			for _, m := range got.Current {
				current += m.Node
			}
			for _, s := range got.Free {
				free = append(free, s.Name)
			}
			if current != test.current || !slices.Equal(free, test.free) {
				t.Errorf("current %s, free %q", current, free)
			}
		})
	}
}

func TestDecide_NamesFewOfMany(t *testing.T) {
	t.Parallel()
	view := View{Wants: []Want{{main, fresh}}, Nodes: map[string]string{}}
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		view.Members = append(view.Members, machine(name, main), machine("w"+name, main))
		view.Nodes[name], view.Nodes["w"+name] = main, main
		view.Pods = append(view.Pods, fails(name, "x"))
	}
	condition := finding.ConditionOf(Decide(view).Findings, "")
	if strings.Count(condition.Message, "node ") != 3 || !strings.HasPrefix(condition.Message, "* node a: ") ||
		!strings.HasSuffix(condition.Message, "0 of 12 nodes have the current files of Secret prod-proxy-files, and 6 failed; "+
			"waiting for wa, wb, wc and 3 more") {
		t.Errorf("got %s", condition.Message)
	}
}

func TestMain(m *testing.M) {
	New() // its names
	m.Run()
}
