package workload

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Grant is which version the label of a Node lets it apply. Only the manager writes the label.
type Grant int

// The grants of a Node: nothing, another version than the current one, or the current one.
const (
	GrantNone Grant = iota
	GrantOther
	GrantCurrent
)

// TurnNode is a node of a generated Secret that is not being deleted, as the gate sees it.
type TurnNode struct {
	Name string
	// Group is the pool, or the control plane.
	Group        string
	ControlPlane bool
	Grant        Grant
	// Settled reports that the Pod of the granted version is ready. Started reports that it has begun to apply, and Failed
	// that it could not.
	Settled, Started, Failed bool
	// NotReady is since when the Node is not ready, the zero time if it is.
	NotReady time.Time
}

func (n TurnNode) isCurrent() bool { return n.Grant == GrantCurrent }

// isDone reports whether a node has applied the current version.
func (n TurnNode) isDone() bool { return n.isCurrent() && n.Settled }

// isChanging reports whether a node applies a version, or may begin to.
func (n TurnNode) isChanging() bool { return n.Grant != GrantNone && !n.Settled }

// notReadyTime is for how long a node that is not ready counts as one that changes.
const notReadyTime = time.Minute

// isDown reports whether a node is not ready, for longer than others wait for it.
func (n TurnNode) isDown(now time.Time) bool {
	return !n.NotReady.IsZero() && now.Sub(n.NotReady) >= notReadyTime
}

// isAway reports whether a node gets the current version when it is ready again, and the others do not wait for it. One
// on which the current version has begun is never away: it may be the version that ended it.
func (n TurnNode) isAway(now time.Time) bool {
	return n.isDown(now) && !n.isDone() && (!n.isCurrent() || !n.Started)
}

// isBusy reports whether a node takes one of the places of its group.
func (n TurnNode) isBusy(now time.Time) bool {
	return n.isChanging() || !n.NotReady.IsZero() && !n.isDown(now)
}

// Turn is which nodes may apply the current version now.
type Turn struct {
	// Grant are the nodes that get the current version, in order. Revoke are nodes that are away and lose the version that
	// they have, so that they do not begin by themselves when they are back.
	Grant, Revoke []string
	// Away are the nodes that the others do not wait for, in order.
	Away []string
	// Again is after which time the decision may be another although nothing changes, or zero.
	Again time.Duration
}

// Turns decides which nodes of one generated Secret may apply its current version now. maxUnavailable is that of each
// group but the control plane, whose nodes change one after the other, and not while controlPlaneRolls: its Machines
// are being replaced.
//
// A version begins on one node of all groups, and then on one of each group. No other node gets it after it has failed
// on one. Workers come before the control plane, and nodes in the middle of a change before others.
func Turns(nodes []TurnNode, controlPlaneRolls bool, maxUnavailable string, now time.Time) Turn {
	var t Turn
	groups := map[string][]TurnNode{}
	var began, proven, failed bool
	for _, n := range nodes {
		if n.isAway(now) {
			t.Away = append(t.Away, n.Name)
			if n.isChanging() {
				t.Revoke = append(t.Revoke, n.Name)
			}
			continue
		}
		if !n.NotReady.IsZero() && !n.isDown(now) {
			t.lookAgain(notReadyTime - now.Sub(n.NotReady))
		}
		groups[n.Group] = append(groups[n.Group], n)
		failed = failed || n.isCurrent() && n.Failed
		proven = proven || n.isDone()
		began = began || n.isCurrent()
	}
	slices.Sort(t.Away)
	slices.Sort(t.Revoke)
	if failed || began && !proven {
		return t
	}
	for _, name := range order(groups) {
		if controlPlaneRolls && groups[name][0].ControlPlane {
			continue
		}
		granted := turnsOf(groups[name], maxUnavailable, now)
		t.Grant = append(t.Grant, granted...)
		if len(granted) > 0 && !proven {
			break
		}
	}
	slices.Sort(t.Grant)
	return t
}

func (t *Turn) lookAgain(after time.Duration) {
	if t.Again == 0 || after < t.Again {
		t.Again = after
	}
}

// order returns the groups in the order in which a version begins: workers first.
func order(groups map[string][]TurnNode) []string {
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		switch x, y := groups[a][0].ControlPlane, groups[b][0].ControlPlane; {
		case x == y:
			return cmp.Compare(a, b)
		case x:
			return 1
		}
		return -1
	})
	return names
}

// turnsOf returns the nodes of a group that get the version.
func turnsOf(group []TurnNode, maxUnavailable string, now time.Time) (granted []string) {
	limit := limitOf(maxUnavailable, len(group))
	if group[0].ControlPlane || !slices.ContainsFunc(group, TurnNode.isDone) {
		limit = 1
	}
	busy, changing := 0, 0 // with any version, and with the current one
	var candidates []TurnNode
	for _, n := range group {
		if n.isBusy(now) {
			busy++
		}
		switch {
		case n.isDone():
		case n.isCurrent():
			changing++
		case n.NotReady.IsZero():
			candidates = append(candidates, n)
		}
	}
	slices.SortFunc(candidates, func(a, b TurnNode) int {
		switch {
		case a.isChanging() == b.isChanging():
			return cmp.Compare(a.Name, b.Name)
		case a.isChanging():
			return -1
		}
		return 1
	})
	for _, n := range candidates {
		// A node in the middle of a change takes no further place.
		if changing >= limit || !n.isChanging() && busy >= limit {
			break
		}
		if !n.isChanging() {
			busy++
		}
		changing++
		granted = append(granted, n.Name)
	}
	return granted
}

// limitOf returns how many of a number of nodes a positive number or a percentage is: at least 1.
func limitOf(maxUnavailable string, nodes int) int {
	text, percent := strings.CutSuffix(maxUnavailable, "%")
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		return 1
	}
	if percent {
		number = int(math.Ceil(float64(number) * float64(nodes) / 100)) //nolint:mnd // it is a percentage
	}
	return max(1, number)
}
