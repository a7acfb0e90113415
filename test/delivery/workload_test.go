package delivery

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// controllers runs the controllers of Kubernetes that a DaemonSet and the Leases of deleted Nodes need, for a workload
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
		"--controllers=daemonset-controller,garbage-collector-controller")
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

// agents play the scheduler, the kubelets and the Pods of a workload cluster: nodes take turns, apply the files of their
// Pod, and release their turn.
type agents struct {
	t      *testing.T
	remote client.Client

	// has is the version whose files a node has, and rounds is for how long it has worked on the next one.
	has    map[string]string
	rounds map[string]int
	// began are the nodes that a version has begun on.
	began map[string]map[string]bool
	// fails is a version that fails on every node, with what its Pods say, and drifted a node whose files somebody changed.
	fails, says, drifted string
	// down are nodes that do nothing. The next one that takes a turn goes down if dies is set.
	down map[string]bool
	dies bool
	// most are the most nodes that had a turn at once.
	most int
}

func newAgents(t *testing.T, remote client.Client) agents {
	t.Helper()
	return agents{
		t: t, remote: remote, has: map[string]string{}, rounds: map[string]int{}, began: map[string]map[string]bool{},
		down: map[string]bool{},
	}
}

// versionOf returns the version of the files that a Pod has.
func versionOf(pod *corev1.Pod) string { return pod.Labels[inplace.LabelFilesVersion] }

// newNode makes a Node.
func newNode(t *testing.T, remote client.Client, name string) {
	t.Helper()
	vocabulary.Create(t, remote, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"},
	}})
}

// work binds Pods, ends those that are deleted, and has each node do a step.
func (k *agents) work() {
	k.t.Helper()
	var pods corev1.PodList
	if err := k.remote.List(k.t.Context(), &pods, client.InNamespace(inplace.NodesNamespace)); err != nil {
		return // the API server is away
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		node := nodeOf(pod)
		var err error
		switch {
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp.IsZero():
			err = k.remote.SubResource("binding").Create(k.t.Context(), pod, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
				Target:     corev1.ObjectReference{Kind: "Node", Name: node},
			})
		case k.down[node]:
		case !pod.DeletionTimestamp.IsZero():
			err = k.remote.Delete(k.t.Context(), pod, client.GracePeriodSeconds(0))
		default:
			if want := k.step(pod, node); want != nil && summary(&pod.Status) != summary(want) {
				pod.Status = *want
				err = k.remote.Status().Update(k.t.Context(), pod)
			}
		}
		_ = err // another has changed the Pod, which is looked at again
	}
}

// step is what a node does with its Pod. It returns the status of the Pod, or nil if that stays.
func (k *agents) step(pod *corev1.Pod, node string) *corev1.PodStatus {
	version := versionOf(pod)
	if k.has[node] == version {
		if !k.release(node) {
			return nil
		}
		if node == k.drifted {
			return driftedStatus()
		}
		return runningStatus()
	}
	if !k.take(pod, node) {
		return nil
	}
	if k.began[version] == nil {
		k.began[version] = map[string]bool{}
	}
	k.began[version][node] = true
	if k.dies {
		k.dies, k.down[node] = false, true
		return nil
	}
	if k.rounds[node]++; k.rounds[node] < 3 { //nolint:mnd // it takes a while
		return nil
	}
	if k.rounds[node] = 0; version == k.fails {
		return failedStatus(k.says)
	}
	k.has[node] = version
	return nil
}

// leases are the slots.
func (k *agents) leases() []coordinationv1.Lease {
	var leases coordinationv1.LeaseList
	if err := k.remote.List(k.t.Context(), &leases, client.InNamespace(inplace.NodesNamespace)); err != nil {
		return nil
	}
	return slices.DeleteFunc(leases.Items, func(l coordinationv1.Lease) bool {
		return !strings.HasPrefix(l.Name, contract.Name+"-slot-")
	})
}

func holderOf(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

// take reports whether a node has a turn, or gets one.
func (k *agents) take(pod *corev1.Pod, node string) bool {
	leases, taken, free := k.leases(), 0, (*coordinationv1.Lease)(nil)
	args := pod.Spec.InitContainers[0].Args
	slots, err := strconv.Atoi(args[slices.Index(args, "--slots")+1])
	if err != nil {
		k.t.Fatal(err)
	}
	for i := range leases {
		number, err := strconv.Atoi(strings.TrimPrefix(leases[i].Name, contract.Name+"-slot-"))
		switch holder := holderOf(&leases[i]); {
		case err != nil || number >= slots:
		case holder == node:
			return true
		case holder == "":
			free = &leases[i]
		default:
			taken++
		}
	}
	self := &corev1.Node{}
	if free == nil || k.remote.Get(k.t.Context(), client.ObjectKey{Name: node}, self) != nil {
		return false
	}
	free.Spec.HolderIdentity, free.Spec.AcquireTime = &node, new(metav1.NewMicroTime(timeOfDay()))
	free.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: self.UID}}
	if k.remote.Update(k.t.Context(), free) != nil {
		return false
	}
	k.most = max(k.most, taken+1)
	return true
}

// release reports whether a node has no turn any more.
func (k *agents) release(node string) bool {
	for _, lease := range k.leases() {
		if holderOf(&lease) != node {
			continue
		}
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.OwnerReferences = nil, nil, nil
		if k.remote.Update(k.t.Context(), &lease) != nil {
			return false
		}
	}
	return true
}

// summary is what distinguishes the statuses that tests write.
func summary(status *corev1.PodStatus) string {
	text := ""
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		text += fmt.Sprint(c.State.Running != nil, c.State.Waiting != nil)
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

// runningStatus is the status of a Pod that has applied its files.
func runningStatus() *corev1.PodStatus {
	return &corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(timeOfDay()),
		}},
		InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "apply", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
		}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "watch", Ready: true, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(timeOfDay())},
		}}},
	}
}

// driftedStatus is the status of a Pod whose files on the node somebody has changed.
func driftedStatus() *corev1.PodStatus {
	status := runningStatus()
	status.ContainerStatuses[0] = corev1.ContainerStatus{
		Name: "watch", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Message: "/etc/capi-proxy-patcher/proxy.env differs\n",
		}},
	}
	return status
}

// failedStatus is the status of a Pod whose init container has failed with a message.
func failedStatus(message string) *corev1.PodStatus {
	status := runningStatus()
	status.Phase, status.Conditions = corev1.PodPending, nil
	status.InitContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}
	status.ContainerStatuses[0] = corev1.ContainerStatus{
		Name: "watch", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}},
	}
	return status
}
