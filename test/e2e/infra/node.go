//go:build e2e

package infra

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterLabel on a Node names its cluster.
const clusterLabel = "local." + group + "/cluster"

// node is a machine that came up.
type node struct {
	name, version string
	controlPlane  bool
}

// nodeName returns the name of the Node of a machine. All workload clusters share one API server, so it is unique
// there.
func nodeName(namespace, machine string, index int) string {
	name := namespace + "." + machine
	if index > 0 {
		name = fmt.Sprintf("%s-%d", name, index)
	}
	return name
}

func (n node) providerID() string { return "local://" + n.name }

// createNode creates what is there when kubeadm has done its work: the Node, and for one of a control plane its static
// Pods and kubeadm's ConfigMap. What exists stays. Where machines are real, kubeadm does it.
func (p *Provider) createNode(ctx context.Context, cluster types.NamespacedName, n node) error {
	if p.workloads == nil {
		return nil
	}
	backend := p.workloads.client
	ready := metav1.NewTime(now())
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{clusterLabel: systemNamespace(cluster)}},
		Spec:       corev1.NodeSpec{ProviderID: n.providerID()},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: n.version},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: ready, LastTransitionTime: ready},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, LastHeartbeatTime: ready, LastTransitionTime: ready},
				{
					Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, LastHeartbeatTime: ready,
					LastTransitionTime: ready,
				},
				{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, LastHeartbeatTime: ready, LastTransitionTime: ready},
			},
		},
	}
	if n.controlPlane {
		const role = "node-role.kubernetes.io/control-plane"
		object.Labels[role] = ""
		object.Spec.Taints = []corev1.Taint{{Key: role, Effect: corev1.TaintEffectNoSchedule}}
		if err := p.createControlPlane(ctx, cluster, n); err != nil {
			return err
		}
	}
	if err := client.IgnoreAlreadyExists(backend.Create(ctx, object)); err != nil {
		return fmt.Errorf("creating Node %s: %w", n.name, err)
	}
	return nil
}

func (p *Provider) createControlPlane(ctx context.Context, cluster types.NamespacedName, n node) error {
	backend, namespace := p.workloads.client, systemNamespace(cluster)
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: component + "-" + n.name,
				Labels: map[string]string{"tier": "control-plane", "component": component},
				// Mirror Pods are not evicted when a Node is drained.
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "static"},
			},
			Spec: corev1.PodSpec{
				NodeName:   n.name,
				Containers: []corev1.Container{{Name: component, Image: component + ":" + n.version}},
			},
		}
		err := backend.Create(ctx, pod)
		if client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating Pod %s: %w", pod.Name, err)
		}
		if err != nil {
			continue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if err := backend.Status().Update(ctx, pod); err != nil {
			return fmt.Errorf("updating status of Pod %s: %w", pod.Name, err)
		}
	}
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubeadm-config"},
		Data: map[string]string{
			"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: " +
				n.version + "\n",
		},
	}
	if err := client.IgnoreAlreadyExists(backend.Create(ctx, config)); err != nil {
		return fmt.Errorf("creating ConfigMap kubeadm-config of %s: %w", cluster, err)
	}
	return nil
}

// deleteNode deletes a Node and its Pods, which are static: nobody else would. Where machines are real, Cluster API
// does what is left to do.
func (p *Provider) deleteNode(ctx context.Context, name string) error {
	if p.workloads == nil {
		return nil
	}
	backend := p.workloads.client
	pods := &corev1.PodList{}
	if err := backend.List(ctx, pods, client.MatchingFields{"spec.nodeName": name}); err != nil {
		return fmt.Errorf("listing Pods of Node %s: %w", name, err)
	}
	for i := range pods.Items {
		if err := client.IgnoreNotFound(backend.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))); err != nil {
			return fmt.Errorf("deleting Pod %s: %w", pods.Items[i].Name, err)
		}
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreNotFound(backend.Delete(ctx, object)); err != nil {
		return fmt.Errorf("deleting Node %s: %w", name, err)
	}
	return nil
}
