package workload

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pool are nodes of a group, whose names begin with its name.
func pool(group string, count int, edit func(i int, n *TurnNode)) (nodes []TurnNode) {
	for i := range count {
		n := TurnNode{Name: fmt.Sprintf("%s-%02d", group, i), Group: group, ControlPlane: group == "cp"}
		if edit != nil {
			edit(i, &n)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func has(grant Grant, settled bool) func(int, *TurnNode) {
	return func(_ int, n *TurnNode) { n.Grant, n.Settled = grant, settled }
}

// one edits one node of a group whose others have the previous version.
func one(at int, edit func(n *TurnNode)) func(int, *TurnNode) {
	return func(i int, n *TurnNode) {
		if n.Grant, n.Settled = GrantOther, true; i == at {
			edit(n)
		}
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	long, short := noon.Add(-time.Hour), noon.Add(-40*time.Second)
	first := func(n *TurnNode) { n.Grant, n.Settled = GrantCurrent, false }
	failed := func(n *TurnNode) { n.Grant, n.Settled, n.Started, n.Failed = GrantCurrent, false, true, true }
	for name, test := range map[string]struct {
		nodes []TurnNode
		rolls bool
		max   string
		want  Turn
	}{
		"twelve nodes behind":         {pool("w", 12, nil), false, "12", Turn{Grant: []string{"w-00"}}},
		"off and on again":            {pool("w", 12, nil), false, "1", Turn{Grant: []string{"w-00"}}},
		"a changed Secret":            {pool("w", 12, has(GrantOther, true)), false, "1", Turn{Grant: []string{"w-00"}}},
		"no Pod on any node":          {pool("w", 12, has(GrantOther, false)), false, "3", Turn{Grant: []string{"w-00"}}},
		"the first has not proven it": {pool("w", 12, one(0, first)), false, "100%", Turn{}},
		"the next one":                {pool("w", 3, one(0, func(n *TurnNode) { n.Grant, n.Settled = GrantCurrent, true })), false, "1", Turn{Grant: []string{"w-01"}}},
		"the next ones, in percent":   {pool("w", 12, one(0, func(n *TurnNode) { n.Grant, n.Settled = GrantCurrent, true })), false, "10%", Turn{Grant: []string{"w-01", "w-02"}}},
		"done":                        {pool("w", 12, has(GrantCurrent, true)), false, "1", Turn{}},
		"a version that failed": {append(pool("w", 12, one(3, failed)), pool("w", 1, func(_ int, n *TurnNode) {
			n.Name, n.Grant, n.Settled = "w-99", GrantCurrent, true
		})...), false, "100%", Turn{}},
		"a corrected version":               {pool("w", 12, one(7, func(n *TurnNode) { n.Settled, n.Failed = false, true })), false, "1", Turn{Grant: []string{"w-07"}}},
		"more failed than may now change":   {pool("w", 3, has(GrantOther, false)), false, "1", Turn{Grant: []string{"w-00"}}},
		"a dead node":                       {pool("w", 3, one(0, func(n *TurnNode) { n.NotReady = long })), false, "1", Turn{Grant: []string{"w-01"}, Away: []string{"w-00"}}},
		"a node that has just gone":         {pool("w", 3, one(0, func(n *TurnNode) { n.NotReady = short })), false, "1", Turn{Again: 20 * time.Second}},
		"granted, and dead before it began": {pool("w", 3, one(0, func(n *TurnNode) { n.Grant, n.Settled, n.NotReady = GrantCurrent, false, long })), false, "1", Turn{Grant: []string{"w-01"}, Revoke: []string{"w-00"}, Away: []string{"w-00"}}},
		"dead while it applies":             {pool("w", 3, one(0, func(n *TurnNode) { n.Grant, n.Settled, n.Started, n.NotReady = GrantCurrent, false, true, long })), false, "1", Turn{}},
		"dead after it has applied":         {pool("w", 3, one(0, func(n *TurnNode) { n.Grant, n.NotReady = GrantCurrent, long })), false, "1", Turn{Grant: []string{"w-01"}}},
		"dead in the middle of another":     {pool("w", 3, one(0, func(n *TurnNode) { n.Settled, n.Started, n.NotReady = false, true, long })), false, "1", Turn{Grant: []string{"w-01"}, Revoke: []string{"w-00"}, Away: []string{"w-00"}}},
		"all dead":                          {pool("w", 2, func(_ int, n *TurnNode) { n.NotReady = long }), false, "1", Turn{Away: []string{"w-00", "w-01"}}},
		"pools before the control plane":    {append(pool("cp", 3, nil), pool("w", 3, nil)...), false, "3", Turn{Grant: []string{"w-00"}}},
		"groups at once, once it is proven": {append(pool("cp", 3, nil), append(pool("v", 3, nil), pool("w", 3, has(GrantCurrent, true))...)...), false, "3", Turn{Grant: []string{"cp-00", "v-00"}}},
		"control plane, one by one":         {pool("cp", 5, one(0, func(n *TurnNode) { n.Grant, n.Settled = GrantCurrent, true })), false, "100%", Turn{Grant: []string{"cp-01"}}},
		"a control plane that is replaced":  {append(pool("cp", 3, nil), pool("w", 1, has(GrantCurrent, true))...), true, "1", Turn{}},
		"a pool that grows":                 {pool("w", 3, nil), true, "1", Turn{Grant: []string{"w-00"}}},
		"a number that cannot be read":      {pool("w", 3, one(0, func(n *TurnNode) { n.Grant, n.Settled = GrantCurrent, true })), false, "x", Turn{Grant: []string{"w-01"}}},
		"nothing":                           {nil, false, "1", Turn{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // the order of the nodes does not matter
				if diff := cmp.Diff(test.want, Turns(test.nodes, test.rolls, test.max, noon)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				slices.Reverse(test.nodes)
			}
		})
	}
}

// TestTurns_ReachEveryNode lets nodes settle one step after they were granted the version.
func TestTurns_ReachEveryNode(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"1", "5", "25%", "100%"} {
		nodes := slices.Concat(pool("cp", 3, nil), pool("v", 12, has(GrantOther, false)), pool("w", 12, nil))
		for step := 0; ; step++ {
			changing := map[string]int{}
			for i := range nodes {
				if nodes[i].isCurrent() && !nodes[i].Settled {
					nodes[i].Settled = true
				}
			}
			turn := Turns(nodes, false, limit, noon)
			if len(turn.Grant) == 0 {
				break
			}
			for i, n := range nodes {
				if slices.Contains(turn.Grant, n.Name) {
					nodes[i].Grant, nodes[i].Settled = GrantCurrent, false
					changing[n.Group]++
				}
			}
			if step == 0 && len(turn.Grant) != 1 || changing["cp"] > 1 || changing["w"] > limitOf(limit, 12) ||
				changing["v"] > limitOf(limit, 12) || step > 100 {
				t.Fatalf("%s, step %d: %v", limit, step, turn.Grant)
			}
		}
		if i := slices.IndexFunc(nodes, func(n TurnNode) bool { return !n.isCurrent() || !n.Settled }); i >= 0 {
			t.Errorf("%s: %+v", limit, nodes[i])
		}
	}
}
