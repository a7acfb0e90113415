package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// TrimNode keeps of a Node of a workload cluster what names a version of it, the files that it may apply, and condition
// Ready.
func TrimNode(node *corev1.Node) {
	trimmed := corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, CreationTimestamp: node.CreationTimestamp,
	}}
	if files, labelled := node.Labels[contract.LabelNodeFiles]; labelled {
		trimmed.Labels = map[string]string{contract.LabelNodeFiles: files}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{
				Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
			}}
		}
	}
	*node = trimmed
}

// TrimPod keeps of a Pod of a workload cluster its node, its labels, whether it is being deleted, and how its
// containers are.
func TrimPod(pod *corev1.Pod) {
	status := corev1.PodStatus{
		InitContainerStatuses: containers(pod.Status.InitContainerStatuses),
		ContainerStatuses:     containers(pod.Status.ContainerStatuses),
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.ContainersReady {
			status.Conditions = []corev1.PodCondition{{
				Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
			}}
		}
	}
	*pod = corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName}, Status: status,
	}
}

func containers(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, 0, len(all))
	for _, c := range all {
		kept = append(kept, corev1.ContainerStatus{
			Name: c.Name, State: c.State, LastTerminationState: c.LastTerminationState,
		})
	}
	return slices.Clip(kept)
}
