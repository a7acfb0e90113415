package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
)

// Want is what the nodes of one generated Secret should have.
type Want struct {
	// Secret is the name of the generated Secret.
	Secret string
	// Digest is the digest of its files, "" as long as nothing of them is delivered.
	Digest string
}

// Member is a node whose bootstrap data refers to a generated Secret.
type Member struct {
	// Node is its name, "" as long as Cluster API has not found it: of a Machine that boots, or after clusterctl move.
	Node string
	// Secret is the name of the generated Secret.
	Secret string
	// Machine is its Machine and Config the KubeadmConfig of that, "" for a node of a MachinePool.
	Machine, Config string
	// Leaving reports that its Machine is being deleted: it keeps the label, and nobody waits for it.
	Leaving bool
}

// Pod is what is read of a Pod that brings files to a node.
type Pod struct {
	Name, Node string
	// Label and Digest are of the files that it has.
	Label, Digest string
	// Ready reports that what is on the host is what it has.
	Ready bool
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

// Decision is what follows from the state of a workload cluster.
type Decision struct {
	// Labels are the changes of contract.LabelNodeFiles by node; "" removes it.
	Labels map[string]string
	// Current are the members of Machines that have the files that they should have.
	Current []Member
	// Findings are those of the condition.
	Findings []finding.Finding
	// Again is the time after which the decision may be another one although nothing changes, or zero.
	Again time.Duration
}

// maxFailing is how many failing nodes of a generated Secret are named.
const maxFailing = 3

// Decide decides about the nodes of a Cluster. labelled are the values of contract.LabelNodeFiles of all nodes of the
// workload cluster, by name.
func Decide(wants []Want, members []Member, labelled map[string]string, pods []Pod, now time.Time) Decision {
	d := Decision{Labels: map[string]string{}}
	labels := map[string]string{}
	for _, m := range members {
		labels[m.Node] = nodes.Label(m.Secret)
	}
	_, unknown := labels[""]
	for node, has := range labelled {
		want := labels[node]
		if want == has || want == "" && unknown { // it may be the one that is not known
			continue
		}
		d.Labels[node] = want
	}
	byNode := map[string]Pod{}
	for _, pod := range pods {
		// During a change there are Pods of both versions for a moment: the one with other files than wanted matters less.
		if known, found := byNode[pod.Node]; pod.Label == labels[pod.Node] && (!found || !isCurrent(known, wants)) {
			byNode[pod.Node] = pod
		}
	}
	for _, want := range wants {
		d.follow(want, members, byNode, now)
	}
	return d
}

func isCurrent(pod Pod, wants []Want) bool {
	return slices.ContainsFunc(wants, func(w Want) bool {
		return nodes.Label(w.Secret) == pod.Label && w.Digest != "" && w.Digest == pod.Digest
	})
}

// follow counts the nodes of one generated Secret.
func (d *Decision) follow(want Want, members []Member, pods map[string]Pod, now time.Time) {
	var done, all int
	var next, waiting, failing []string
	for _, m := range members {
		if m.Secret != want.Secret || m.Leaving || m.Node == "" {
			continue
		}
		all++
		pod := pods[m.Node]
		failure, again := pod.failureAt(now)
		if again > 0 && (d.Again == 0 || again < d.Again) {
			d.Again = again
		}
		switch current := want.Digest != "" && pod.Digest == want.Digest; {
		case failure != "":
			failing = append(failing, fmt.Sprintf("node %s: %s; delete Pod %s/%s to retry", m.Node, failure,
				contract.NodesNamespace, pod.Name))
		case !current:
			waiting = append(waiting, m.Node)
		case !pod.Ready && again == 0:
			next = append(next, m.Node)
		default:
			if done++; m.Machine != "" {
				d.Current = append(d.Current, m)
			}
		}
	}
	slices.Sort(failing)
	for _, text := range failing[:min(maxFailing, len(failing))] {
		d.Findings = append(d.Findings, finding.Finding{Reason: contract.ReasonInPlaceFailed, Message: text})
	}
	progress := finding.Finding{
		Reason: contract.ReasonInPlaceProgressing, Progress: true,
		Message: fmt.Sprintf("%d of %d nodes have the current files of Secret %s", done, all, want.Secret),
	}
	slices.Sort(next)
	slices.Sort(waiting)
	switch waiting = append(next, waiting...); {
	case len(failing) > 0:
		progress.Message += fmt.Sprintf(", and %d failed", len(failing))
	case len(waiting) == 0:
		return
	case want.Digest == "":
		progress.Message = fmt.Sprintf("the files of Secret %s are not delivered to %d nodes yet; condition %s says why",
			want.Secret, all, contract.ConditionProxyPublished)
	default:
		progress.Message += "; waiting for node " + waiting[0]
	}
	d.Findings = append(d.Findings, progress)
}

// PodOf returns what is read of a Pod.
func PodOf(pod *corev1.Pod) Pod {
	p := Pod{
		Name: pod.Name, Node: pod.Spec.NodeName,
		Label: pod.Labels[contract.LabelNodeFiles], Digest: pod.Labels[contract.LabelFilesDigest],
	}
	// It is that of the containers: a Pod is not ready either while nobody hears of its node.
	var unready time.Time
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.ContainersReady {
			p.Ready, unready = condition.Status == corev1.ConditionTrue, condition.LastTransitionTime.Time
		}
	}
	if p.Ready {
		return p
	}
	for _, container := range pod.Status.InitContainerStatuses {
		if p.Failure = endOf(container); p.Failure == "" {
			p.Failure = reasonOf(container)
		}
		if p.Failure != "" {
			return p
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		if p.Failure = reasonOf(container); p.Failure != "" {
			return p
		}
		// Before it was ready for the first time, it has not been ready since the creation of the Pod.
		if running := container.State.Running; running != nil && unready.After(running.StartedAt.Time) {
			p.Drifted = unready
		}
	}
	return p
}

// endOf returns why an init container failed, "" if it did not. While it is started again and again, the answer stays
// the same.
func endOf(container corev1.ContainerStatus) string {
	ended := container.State.Terminated
	if ended == nil {
		ended = container.LastTerminationState.Terminated
	}
	if ended == nil || ended.ExitCode == 0 {
		return ""
	}
	if reason := LastLine(ended.Message); reason != "" {
		return reason
	}
	return fmt.Sprintf("container %s ended with code %d", LastLine(container.Name), ended.ExitCode)
}

// reasonOf returns why a container does not run, "" if it does or is expected to.
func reasonOf(container corev1.ContainerStatus) string {
	waiting := container.State.Waiting
	if waiting == nil {
		return ""
	}
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
		return "the image of its Pod cannot be pulled"
	case "CrashLoopBackOff":
		if reason := endOf(container); reason != "" {
			return reason
		}
		return fmt.Sprintf("container %s ends again and again", LastLine(container.Name))
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return "its Pod cannot be started: " + waiting.Reason
	}
	return ""
}

// maxFailure is the longest failure of a node in a message, in bytes.
const maxFailure = 300

// LastLine returns the last line of a text from a node that is not blank, as it can stand in a message: at most
// maxFailure bytes, without characters that do not print. A node can write anything.
func LastLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("\n\r\u2028\u2029", r) })
	for _, line := range slices.Backward(lines) {
		if line = finding.Line(line, maxFailure); line != "" {
			return line
		}
	}
	return ""
}
