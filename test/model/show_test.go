package model_test

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/slim"
)

// show makes an object what the manager's cache shows of it.
func show(object client.Object) {
	switch o := object.(type) {
	case *clusterv1.Cluster:
		k := &slim.Cluster{Spec: &o.Spec, Status: &o.Status}
		copyMetadata(k, o)
		k.Keep()
		k.Into(o)
	case *clusterv1.MachineDeployment:
		k := &slim.Deployment{Spec: &o.Spec}
		copyMetadata(k, o)
		k.Keep()
		k.Into(o)
	case *clusterv1.MachinePool:
		k := &slim.Pool{Spec: &o.Spec}
		copyMetadata(k, o)
		k.Keep()
		k.Into(o)
	case *controlplanev1.KubeadmControlPlane:
		k := &slim.ControlPlane{Spec: &o.Spec, Status: &o.Status}
		copyMetadata(k, o)
		k.Keep()
		k.Into(o)
	case *bootstrapv1.KubeadmConfigTemplate:
		k := &slim.Template{Spec: &o.Spec}
		copyMetadata(k, o)
		k.Keep()
		k.Into(o)
	case *bootstrapv1.KubeadmConfig:
		k := &slim.Config{Spec: &o.Spec, Status: &o.Status}
		copyMetadata(k, o)
		k.Keep()
		k.Into(o)
	}
}

func copyMetadata(to, from metav1.Object) {
	to.SetName(from.GetName())
	to.SetNamespace(from.GetNamespace())
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetGeneration(from.GetGeneration())
	to.SetCreationTimestamp(from.GetCreationTimestamp())
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
	to.SetLabels(from.GetLabels())
	to.SetAnnotations(from.GetAnnotations())
	to.SetOwnerReferences(from.GetOwnerReferences())
	to.SetFinalizers(from.GetFinalizers())
}
