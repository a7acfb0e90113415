package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// View is what a decision about the nodes of a Cluster is made of.
type View struct {
	Wants   []Want
	Members []Member
	// Nodes are all nodes of the workload cluster, by name.
	Nodes map[string]Node
	// Pods are the Pods that bring files to nodes.
	Pods []Pod
	// MaxUnavailable is how many nodes of a pool change at a time.
	MaxUnavailable string
	// ControlPlaneRolls reports that Machines of the control plane boot, or are being deleted.
	ControlPlaneRolls bool
	// Restores reports that the one version of Wants removes the files. It is for the members that have files, and for all
	// other nodes with a version.
	Restores bool
	// Refused is why there is no Pod on a node that has a version, by node, as far as that is known.
	Refused map[string]string
	Now     time.Time
}

// Want is what the nodes of one generated Secret should have.
type Want struct {
	// Secret is the name of the generated Secret.
	Secret string
	// Version is that of its files, "" as long as they are not known.
	Version string
}

// Member is a node of a generated Secret.
type Member struct {
	// Node is its name, "" as long as Cluster API has not found it: of a Machine that boots, or after clusterctl move.
	Node string
	// Secret is the name of the generated Secret.
	Secret string
	// Group is its pool, "" for a node of the control plane.
	Group string
	// Machine is its Machine and Config the KubeadmConfig of that, "" for a node of a MachinePool.
	Machine, Config string
	// Leaving reports that its Machine is being deleted: it keeps the label, and nobody waits for it.
	Leaving bool
	// Plain reports that nothing but a label of its Node can show that it has files.
	Plain bool
}

// Node is what is read of a Node.
type Node struct {
	// Version is its contract.LabelNodeFiles.
	Version string
	// NotReady is since when it is not ready, the zero time if it is.
	NotReady time.Time
}

// Pod is what is read of a Pod that brings files to a node.
type Pod struct {
	Name, Node string
	// Version is that of the files that it has.
	Version string
	// Ready reports that what is on the host is what it has, and Started that it has begun to change the host.
	Ready, Started bool
	// Drifted is since when that is so no longer, the zero time if it is or never was.
	Drifted time.Time
	// Failure is why it failed, "" if it did not.
	Failure string
}

// failureAt returns why a Pod has failed at a time, "" if it has not. again is after which time it has if nothing
// changes.
func (p Pod) failureAt(now time.Time) (failure string, again time.Duration) {
	if p.Failure != "" || p.Drifted.IsZero() {
		return p.Failure, 0
	}
	if again = p.Drifted.Add(maxAway).Sub(now); again > 0 {
		return "", again
	}
	return "its files were changed after they were written", 0
}

// maxAway is for how long a Pod that was ready may be unready before that counts. A kubelet that starts again finds
// every Pod unready until its first probe.
const maxAway = 15 * time.Second

// Decision is what follows from a View.
type Decision struct {
	// Labels are the changes of contract.LabelNodeFiles by node; "" removes it.
	Labels map[string]string
	// Current are the members of Machines that have the files that they should have.
	Current []Member
	// Restored reports that View.Restores has ended: no node has files.
	Restored bool
	// Lacking are the nodes that have a current version and no Pod.
	Lacking []string
	// Findings are those of the condition.
	Findings []finding.Finding
	// Again is the time after which the decision may be another one although nothing changes, or zero.
	Again time.Duration
}

func (d *Decision) lookAgain(after time.Duration) {
	if after > 0 && (d.Again == 0 || after < d.Again) {
		d.Again = after
	}
}

// maxNamed is how many nodes of a generated Secret are named that fail, or that are not ready.
const maxNamed = 3

// Decide decides about the nodes of a Cluster.
func Decide(v View) Decision {
	d := Decision{Labels: map[string]string{}}
	if v.Restores {
		v.Members = v.restored()
	}
	secrets := map[string]string{}
	for _, m := range v.Members {
		secrets[m.Node] = m.Secret
	}
	_, unknown := secrets[""]
	for name, node := range v.Nodes {
		if _, known := secrets[name]; !known && !unknown && node.Version != "" { // else it may be the one that is not known
			d.Labels[name] = ""
		}
	}
	pods := map[string]Pod{}
	for _, pod := range v.Pods {
		// For a moment there are Pods of two versions. The one that the Node has the label of is meant.
		if node := v.Nodes[pod.Node]; node.Version == pod.Version {
			pods[pod.Node] = pod
		}
	}
	for _, want := range v.Wants {
		d.follow(v, want, pods)
	}
	return d
}

// restored returns the members that have files. While one of them boots, nothing is known about other nodes.
func (v View) restored() []Member {
	known := map[string]bool{}
	var members []Member
	for _, m := range v.Members {
		if known[m.Node] = true; !m.Plain || v.Nodes[m.Node].Version != "" {
			members = append(members, m)
		}
	}
	if slices.ContainsFunc(members, func(m Member) bool { return m.Node == "" }) {
		return members
	}
	for _, name := range slices.Sorted(maps.Keys(v.Nodes)) {
		if !known[name] && v.Nodes[name].Version != "" {
			members = append(members, Member{Node: name, Secret: v.Wants[0].Secret, Group: "Node"})
		}
	}
	return members
}

// follow decides about the nodes of one generated Secret, and counts them.
func (d *Decision) follow(v View, want Want, pods map[string]Pod) {
	var members []Member
	var nodes []TurnNode
	for _, m := range v.Members {
		node, exists := v.Nodes[m.Node]
		if m.Secret != want.Secret || m.Leaving || m.Node == "" && !v.Restores {
			continue
		}
		members = append(members, m)
		if !exists {
			continue
		}
		pod := pods[m.Node]
		_, again := pod.failureAt(v.Now)
		n := TurnNode{
			Name: m.Node, Group: m.Group, ControlPlane: m.Group == "", NotReady: node.NotReady,
			Settled: pod.Ready || again > 0, Started: pod.Started, Failed: pod.Failure != "",
		}
		switch node.Version {
		case "":
		case want.Version:
			n.Grant = GrantCurrent
		default:
			n.Grant = GrantOther
		}
		nodes = append(nodes, n)
	}
	turn := Turn{}
	if want.Version != "" {
		turn = Turns(nodes, v.ControlPlaneRolls, v.MaxUnavailable, v.Now)
	}
	for _, name := range turn.Revoke {
		d.Labels[name] = ""
	}
	for _, name := range turn.Grant {
		d.Labels[name] = want.Version
	}
	d.lookAgain(turn.Again)
	d.report(v, want, members, pods, turn)
}

// report counts the members of a generated Secret, and names those that it waits for.
func (d *Decision) report(v View, want Want, members []Member, pods map[string]Pod, turn Turn) {
	var done int
	var next, waiting, failing, booting []string
	onlyControlPlane := true
	for _, m := range members {
		if m.Node == "" {
			booting = append(booting, m.Machine)
			continue
		}
		pod, node := pods[m.Node], v.Nodes[m.Node]
		failure, again := pod.failureAt(v.Now)
		d.lookAgain(again)
		current := want.Version != "" && node.Version == want.Version
		switch {
		case failure != "":
			failing = append(failing, fmt.Sprintf("node %s: %s; delete Pod %s/%s to retry", m.Node, failure,
				contract.NodesNamespace, pod.Name))
		case current && (pod.Ready || again > 0):
			if done++; m.Machine != "" {
				d.Current = append(d.Current, m)
			}
		case slices.Contains(turn.Away, m.Node):
		case current && pod.Name == "":
			d.Lacking = append(d.Lacking, m.Node)
			if why := v.Refused[m.Node]; why != "" {
				failing = append(failing, fmt.Sprintf("node %s has no Pod: %s", m.Node, why))
			} else {
				next = append(next, m.Node)
			}
		case current:
			next = append(next, m.Node)
		default:
			waiting = append(waiting, m.Node)
			onlyControlPlane = onlyControlPlane && m.Group == ""
		}
	}
	slices.Sort(failing)
	for _, text := range failing[:min(maxNamed, len(failing))] {
		d.Findings = append(d.Findings, finding.Finding{Reason: contract.ReasonInPlaceFailed, Message: text})
	}
	progress := finding.Finding{
		Reason: contract.ReasonInPlaceProgressing, Progress: true,
		Message: fmt.Sprintf("%d of %d nodes have the current files of Secret %s", done, len(members), want.Secret),
	}
	if v.Restores {
		progress.Message = fmt.Sprintf("%d of %d nodes are restored", done, len(members))
	}
	slices.Sort(next)
	slices.Sort(waiting)
	slices.Sort(booting)
	switch {
	case len(failing) > 0:
		progress.Message += fmt.Sprintf(", and %d failed", len(failing))
	case len(next)+len(waiting)+len(turn.Away)+len(booting) == 0:
		d.Restored = v.Restores
		return
	case want.Version == "" && v.Restores:
		progress.Message = fmt.Sprintf("the objects that restore %d nodes are not delivered yet; condition %s says why",
			len(members), contract.ConditionProxyPublished)
	case want.Version == "":
		progress.Message = fmt.Sprintf("the files of Secret %s are not delivered to %d nodes yet; condition %s says why",
			want.Secret, len(members), contract.ConditionProxyPublished)
	case len(next) > 0:
		progress.Message += "; waiting for node " + next[0]
	case len(waiting) > 0 && onlyControlPlane && v.ControlPlaneRolls:
		progress.Message += "; the others wait until the Machines of the control plane are replaced"
		boots := func(m Member) bool { return m.Group == "" && m.Node == "" && !m.Leaving }
		if i := slices.IndexFunc(v.Members, boots); i >= 0 {
			progress.Message += "; Machine " + v.Members[i].Machine + " has no Node yet"
		}
	case len(waiting) > 0:
		progress.Message += "; waiting for node " + waiting[0]
	case len(booting) > 0:
		progress.Message += "; waiting for the node of Machine " + booting[0]
	}
	if away := turn.Away; len(away) > 0 {
		progress.Message += "; not ready, and not waited for: " + strings.Join(away[:min(maxNamed, len(away))], ", ")
		if more := len(away) - maxNamed; more > 0 {
			progress.Message += fmt.Sprintf(" and %d more", more)
		}
	}
	d.Findings = append(d.Findings, progress)
}
