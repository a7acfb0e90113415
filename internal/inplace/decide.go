package inplace

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// View is what a decision about the nodes of a Cluster is made of.
type View struct {
	Wants   []Want
	Members []Member
	// Nodes are the values of LabelNodeFiles of all nodes of the workload cluster, by name.
	Nodes map[string]string
	// Pods are the Pods that bring files to nodes, without those that end.
	Pods []Pod
	// Slots are those that exist.
	Slots []Slot
	// Removes reports that the one version of Wants removes the files. It is for the members that have files, and for all
	// other nodes with a label.
	Removes bool
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
	// Machine is its Machine and Config the KubeadmConfig of that, "" for a node of a MachinePool.
	Machine, Config string
	// Leaving reports that its Machine is being deleted: it keeps the label, and nobody waits for it.
	Leaving bool
	// Plain reports that nothing but a label of its Node can show that it has files.
	Plain bool
}

// Pod is what is read of a Pod that brings files to a node.
type Pod struct {
	Name, Node string
	// Version is that of the files that it has.
	Version string
	// Runs reports that its container watch runs, and has not ended with an error just before.
	Runs bool
	// Failure is why it failed, "" if it did not.
	Failure string
}

// Slot is a turn to change a node.
type Slot struct {
	// Name is that of its Lease, and Holder the node that has it, or "".
	Name, Holder string
	// Since is when the node took it, and Failure why it failed since, or "".
	Since   time.Time
	Failure string
}

// Decision is what follows from a View.
type Decision struct {
	// Labels are the changes of LabelNodeFiles by node; "" removes it.
	Labels map[string]string
	// Free are the slots that no node releases any more.
	Free []Slot
	// Current are the members of Machines that have the files that they should have.
	Current []Member
	// Removed reports that View.Removes has ended: no node has files.
	Removed bool
	// Changes reports that something is not as it should be.
	Changes bool
	// Findings are those of the condition.
	Findings []finding.Finding
}

// maxNamed is how many nodes of a kind are named in a message.
const maxNamed = 3

// Decide decides about the nodes of a Cluster.
func Decide(v View) Decision {
	d := Decision{Labels: map[string]string{}}
	if v.Removes {
		v.Members = v.withFiles()
	}
	d.label(v)
	pods := map[string]Pod{}
	for _, pod := range v.Pods {
		if _, found := pods[pod.Node]; !found || slices.ContainsFunc(v.Wants, func(w Want) bool {
			return w.Version == pod.Version
		}) { // of several, the one that is wanted
			pods[pod.Node] = pod
		}
	}
	held := map[string]Slot{}
	for _, slot := range v.Slots {
		held[slot.Holder] = slot
		label, exists := v.Nodes[slot.Holder]
		if _, has := pods[slot.Holder]; slot.Holder != "" && !has && (!exists || label == "" && d.Labels[slot.Holder] == "") {
			d.Free = append(d.Free, slot)
		}
	}
	for _, want := range v.Wants {
		d.follow(v, want, pods, held)
	}
	return d
}

// withFiles returns the members that have files. While one of them boots, nothing is known about other nodes.
func (v View) withFiles() []Member {
	known := map[string]bool{}
	var members []Member
	for _, m := range v.Members {
		if known[m.Node] = true; !m.Plain || v.Nodes[m.Node] != "" {
			members = append(members, m)
		}
	}
	if slices.ContainsFunc(members, func(m Member) bool { return m.Node == "" }) {
		return members
	}
	for _, name := range slices.Sorted(maps.Keys(v.Nodes)) {
		if !known[name] && v.Nodes[name] != "" {
			members = append(members, Member{Node: name, Secret: v.Wants[0].Secret})
		}
	}
	return members
}

// label decides about labels of Nodes. A node keeps its label until the objects of another Secret are known.
func (d *Decision) label(v View) {
	complete := map[string]bool{}
	for _, want := range v.Wants {
		complete[want.Secret] = want.Version != ""
	}
	members, unknown := map[string]bool{}, false
	for _, m := range v.Members {
		members[m.Node] = true
		unknown = unknown || m.Node == ""
		has, exists := v.Nodes[m.Node]
		if label := NodeLabel(m.Secret); exists && complete[m.Secret] && !m.Leaving && has != label {
			d.Labels[m.Node] = label
		}
	}
	for name, label := range v.Nodes {
		if label != "" && !members[name] && !unknown { // else it may be the one that is not known
			d.Labels[name] = ""
		}
	}
}

// follow counts the nodes of one generated Secret, and says what the others wait for.
func (d *Decision) follow(v View, want Want, pods map[string]Pod, held map[string]Slot) {
	var total, done int
	var failing, turns, waiting, booting []string
	for _, m := range v.Members {
		if m.Secret != want.Secret || m.Leaving {
			continue
		}
		if m.Node == "" {
			if v.Removes {
				total++
				booting = append(booting, m.Machine)
			}
			continue
		}
		total++
		pod, slot := pods[m.Node], held[m.Node]
		current := want.Version != "" && pod.Version == want.Version
		failure := pod.Failure
		if failure == "" && slot.Failure != "" && (!current || !pod.Runs) {
			failure = slot.Failure
		}
		switch {
		case failure != "":
			failing = append(failing, "node "+m.Node+": "+failure+"; "+advice(pod, slot))
		case current && pod.Runs && slot.Holder == "" && v.Nodes[m.Node] == NodeLabel(want.Secret):
			if done++; m.Machine != "" {
				d.Current = append(d.Current, m)
			}
		case slot.Holder != "":
			turns = append(turns, m.Node+" since "+slot.Since.UTC().Format(time.RFC3339))
		default:
			waiting = append(waiting, m.Node)
		}
	}
	if done == total {
		d.Removed = v.Removes && len(d.Labels) == 0
		return
	}
	d.Changes = true
	slices.Sort(failing)
	for _, text := range failing[:min(maxNamed, len(failing))] {
		d.Findings = append(d.Findings, finding.Finding{Reason: ReasonInPlaceFailed, Message: text})
	}
	message := fmt.Sprintf("%d of %d nodes have the current files of Secret %s", done, total, want.Secret)
	if v.Removes {
		message = fmt.Sprintf("%d of %d nodes are restored", done, total)
	}
	if len(failing) > 0 {
		message += fmt.Sprintf(", and %d failed", len(failing))
	}
	if want.Version == "" {
		message += "; its present files are not known"
	}
	if len(turns)+len(failing) == 0 { // others have them
		for _, slot := range v.Slots {
			if slot.Holder != "" {
				turns = append(turns, slot.Holder+" since "+slot.Since.UTC().Format(time.RFC3339))
			}
		}
	}
	message += list("; it is the turn of ", turns) + list("; waiting for ", waiting) +
		list("; waiting for the node of Machine ", booting)
	d.Findings = append(d.Findings, finding.Finding{
		Reason: ReasonInPlaceProgressing, Progress: true, Message: message,
	})
}

// advice says what to do about a node that failed.
func advice(pod Pod, slot Slot) string {
	retry := "delete Pod " + NodesNamespace + "/" + pod.Name + " to retry"
	if pod.Name == "" {
		retry = "correct the proxy Secret"
	}
	if slot.Holder == "" {
		return retry
	}
	return "it keeps its turn since " + slot.Since.UTC().Format(time.RFC3339) + ", so that no other node fails; " + retry
}

// list names the first of names after a text, and counts the others.
func list(before string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	text := before + strings.Join(names[:min(maxNamed, len(names))], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}
