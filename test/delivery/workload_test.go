package delivery

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// controllers runs the controllers of Kubernetes that a DaemonSet and the deletion of a Namespace need, for a workload
// cluster.
func controllers(t *testing.T, workload *mgmt.Cluster) {
	t.Helper()
	program := filepath.Join(os.Getenv(mgmt.AssetsVariable), "kube-controller-manager")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("there is no kube-controller-manager; build it with hack/kube/build.sh: %v", err)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := mgmt.WriteKubeconfig(kubeconfig, workload.Config()); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(vocabulary.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	log := &logbuffer.Buffer{}
	cmd := exec.CommandContext(t.Context(), program, "--kubeconfig", kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port", port, "--cert-dir", dir,
		"--controllers=daemonset-controller,namespace-controller,garbage-collector-controller")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // it is killed with the test's context
		if t.Failed() {
			t.Logf("kube-controller-manager: %s", log)
		}
	})
}

// kubelets play the scheduler and the kubelets of a workload cluster.
type kubelets struct {
	t      *testing.T
	remote client.Client
	// says is what the status of a Pod on a node becomes; nil leaves the Pod pending.
	says func(pod *corev1.Pod, node string) *corev1.PodStatus
}

// versionOf returns the version of the files that a Pod has.
func versionOf(pod *corev1.Pod) string { return pod.Labels[contract.LabelNodeFiles] }

// newNode makes a Node that is ready.
func newNode(t *testing.T, remote client.Client, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}}}
	vocabulary.Create(t, remote, node)
	turnsReady(t, remote, name, true, timeOfDay())
}

// turnsReady writes condition Ready of a Node.
func turnsReady(t *testing.T, remote client.Client, name string, ready bool, since time.Time) {
	t.Helper()
	node := vocabulary.Fetch(t, remote, "", name, &corev1.Node{})
	status := corev1.ConditionTrue
	if !ready {
		status = corev1.ConditionUnknown
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(since),
	}}
	if err := remote.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// work binds Pods, ends those that are deleted, and writes statuses, once.
func (k *kubelets) work() {
	k.t.Helper()
	var pods corev1.PodList
	if err := k.remote.List(k.t.Context(), &pods, client.InNamespace(contract.NodesNamespace)); err != nil {
		return // the API server is away
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		var err error
		switch want := k.says(pod, nodeOf(pod)); {
		case !pod.DeletionTimestamp.IsZero():
			err = k.remote.Delete(k.t.Context(), pod, client.GracePeriodSeconds(0))
		case pod.Spec.NodeName == "":
			err = k.remote.SubResource("binding").Create(k.t.Context(), pod, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
				Target:     corev1.ObjectReference{Kind: "Node", Name: nodeOf(pod)},
			})
		case want != nil && (len(pod.Status.Conditions) < 2 || summary(&pod.Status) != summary(want)):
			pod.Status = *want
			err = k.remote.Status().Update(k.t.Context(), pod)
		}
		_ = err // another has changed the Pod, which is looked at again
	}
}

// summary is what distinguishes the statuses that tests write.
func summary(status *corev1.PodStatus) string {
	text := ""
	for _, c := range status.Conditions {
		text += fmt.Sprint(c.Type, c.Status)
	}
	for _, c := range status.InitContainerStatuses {
		text += fmt.Sprint(c.State.Running != nil)
		if c.State.Terminated != nil {
			text += fmt.Sprint(c.State.Terminated.ExitCode, c.State.Terminated.Message)
		}
	}
	return text
}

// nodeOf returns the node for which the DaemonSet controller has made a Pod.
func nodeOf(pod *corev1.Pod) string {
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			return field.Values[0]
		}
	}
	return ""
}

// timeOfDay is what kubelets write into a status, and Cluster API into a condition.
func timeOfDay() time.Time { return time.Now() } //nolint:forbidigo // the manager compares it with the time of day

// podStatus is the status of a Pod that has applied its files, since a time, and is ready or not.
func podStatus(ready bool, since time.Time) *corev1.PodStatus {
	status, running := corev1.ConditionFalse, corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(timeOfDay().Add(-time.Hour))},
	}
	if ready {
		status = corev1.ConditionTrue
	}
	conditions := make([]corev1.PodCondition, 0, 2)
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		conditions = append(conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(since)})
	}
	return &corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: conditions,
		InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "apply", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
		}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "watch", State: running, Ready: ready, Started: &ready}},
	}
}

// applyingStatus is the status of a Pod that applies its files.
func applyingStatus() *corev1.PodStatus {
	status := failedStatus("")
	status.InitContainerStatuses[0].State = corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(timeOfDay())},
	}
	return status
}

// failedStatus is the status of a Pod whose init container has failed with a message.
func failedStatus(message string) *corev1.PodStatus {
	status := podStatus(false, timeOfDay().Add(-2*time.Hour))
	status.Phase = corev1.PodPending
	status.InitContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}
	status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	return status
}
