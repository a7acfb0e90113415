package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// PodOf returns what is read of a Pod.
func PodOf(pod *corev1.Pod) Pod {
	p := Pod{
		Name: pod.Name, Node: pod.Spec.NodeName, Version: pod.Labels[contract.LabelNodeFiles], Started: hasStarted(pod),
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

// hasStarted reports whether the first container of a Pod has begun.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...),
		func(c corev1.ContainerStatus) bool {
			return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
		})
}

// NodeOf returns what is read of a Node.
func NodeOf(node *corev1.Node) Node {
	n := Node{Version: node.Labels[contract.LabelNodeFiles], NotReady: node.CreationTimestamp.Time}
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if n.NotReady = condition.LastTransitionTime.Time; condition.Status == corev1.ConditionTrue {
			n.NotReady = time.Time{}
		}
	}
	return n
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
