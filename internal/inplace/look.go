package inplace

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

const (
	// maxLabels is how many Nodes one pass labels.
	maxLabels = 200
	// settleTime is for how long a container that ended with an error has to run until that counts no more.
	settleTime = 15 * time.Second
	// maxFailure is the longest failure of a node in a message, in bytes.
	maxFailure = 300
)

// workload is the workload cluster of a Cluster in one pass.
type workload struct {
	client.Client

	cluster string
	now     time.Time
	nodes   map[string]*metav1.PartialObjectMetadata
	leases  []coordinationv1.Lease
}

// look reads the Nodes, the Pods and the slots.
func (w *workload) look(ctx context.Context, view *View) error {
	all, err := remote.Metadata(ctx, w, corev1.SchemeGroupVersion.WithKind("Node"))
	if err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	view.Nodes, w.nodes = map[string]string{}, map[string]*metav1.PartialObjectMetadata{}
	for i := range all {
		view.Nodes[all[i].Name], w.nodes[all[i].Name] = all[i].Labels[LabelNodeFiles], &all[i]
	}
	ours := []client.ListOption{client.InNamespace(NodesNamespace), client.MatchingLabels{appLabel: NodesApp}}
	var pods corev1.PodList
	if err := remote.Pages(ctx, w, &pods, func() {
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp.IsZero() {
				view.Pods = append(view.Pods, PodOf(&pods.Items[i], w.now))
			}
		}
		pods.Items = nil
	}, ours...); err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	var leases coordinationv1.LeaseList
	return remote.Pages(ctx, w, &leases, func() {
		for i := range leases.Items {
			lease := leases.Items[i]
			if !strings.HasPrefix(lease.Name, agent.SlotPrefix) || !remote.IsOurs(&lease) {
				continue
			}
			w.leases = append(w.leases, lease)
			view.Slots = append(view.Slots, Slot{
				Name: lease.Name, Holder: finding.Line(ptr.Deref(lease.Spec.HolderIdentity, ""), maxFailure),
				Since:   ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time,
				Failure: LastLine(lease.Annotations[agent.AnnotationFailure]),
			})
		}
		leases.Items = nil
	}, client.InNamespace(NodesNamespace), marks(w.cluster))
}

// change writes the labels of Nodes and the slots of a decision. It ends early when somebody else writes.
func (w *workload) change(ctx context.Context, d Decision, slots int) (taken string, err error) {
	for _, name := range slices.Sorted(maps.Keys(d.Labels))[:min(maxLabels, len(d.Labels))] {
		if err := w.label(ctx, w.nodes[name], d.Labels[name]); err != nil {
			return "", err
		}
	}
	exist := map[string]bool{}
	for _, lease := range w.leases {
		number, err := strconv.Atoi(strings.TrimPrefix(lease.Name, agent.SlotPrefix))
		isFree := slices.ContainsFunc(d.Free, func(s Slot) bool { return s.Name == lease.Name })
		if exist[lease.Name] = err == nil && number < slots && !isFree; exist[lease.Name] {
			continue
		}
		err = w.Delete(ctx, &lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
		if exist[lease.Name] = apierrors.IsConflict(err); !exist[lease.Name] && client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("deleting Lease %s: %w", lease.Name, err)
		}
	}
	for i := range slots {
		name := agent.LeaseName(i)
		if exist[name] {
			continue
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: NodesNamespace, Name: name, Labels: marks(w.cluster),
		}}
		switch err := w.Create(ctx, lease, client.FieldOwner(contract.Name)); {
		case apierrors.IsAlreadyExists(err):
			taken = name
		case err != nil:
			return "", fmt.Errorf("creating Lease %s: %w", name, err)
		}
	}
	return taken, nil
}

// label sets LabelNodeFiles of a Node, unless somebody has changed the Node; "" removes it.
func (w *workload) label(ctx context.Context, node *metav1.PartialObjectMetadata, value string) error {
	labels := map[string]any{LabelNodeFiles: value}
	if value == "" {
		labels[LabelNodeFiles] = nil
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "uid": node.UID}})
	if err != nil {
		return fmt.Errorf("encoding label of Node: %w", err)
	}
	err = w.Patch(ctx, node, client.RawPatch(types.MergePatchType, data), client.FieldOwner(contract.Name))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("labelling Node %s: %w", node.Name, err)
	}
	return nil
}

// PodOf returns what is read of a Pod at a time.
func PodOf(pod *corev1.Pod, now time.Time) Pod {
	p := Pod{Name: pod.Name, Node: pod.Spec.NodeName, Version: pod.Labels[LabelFilesVersion]}
	for _, container := range pod.Status.InitContainerStatuses {
		p.Failure = failureOf(container)
		if container.State.Running != nil { // while it tries again, the answer stays the same
			p.Failure = endOf(container.LastTerminationState.Terminated, container.Name)
		}
		if p.Failure != "" {
			return p
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		if p.Failure = failureOf(container); p.Failure != "" {
			return p
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		running := container.State.Running
		if p.Runs = running != nil; !p.Runs {
			continue
		}
		if last := endOf(container.LastTerminationState.Terminated, container.Name); last != "" &&
			now.Sub(running.StartedAt.Time) < settleTime {
			p.Runs, p.Failure = false, last
		}
	}
	return p
}

// failureOf returns why a container does not run, "" if it does, ended well, or is expected to run.
func failureOf(container corev1.ContainerStatus) string {
	if container.State.Terminated != nil {
		return endOf(container.State.Terminated, container.Name)
	}
	waiting := container.State.Waiting
	if waiting == nil {
		return ""
	}
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
		return "the image of its Pod cannot be pulled"
	case "CrashLoopBackOff":
		return endOf(container.LastTerminationState.Terminated, container.Name)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return "its Pod cannot be started: " + waiting.Reason
	}
	return ""
}

// endOf returns why a container ended, "" if it ended well.
func endOf(ended *corev1.ContainerStateTerminated, name string) string {
	if ended == nil || ended.ExitCode == 0 {
		return ""
	}
	if reason := LastLine(ended.Message); reason != "" {
		return reason
	}
	return fmt.Sprintf("container %s ended with code %d", LastLine(name), ended.ExitCode)
}

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
