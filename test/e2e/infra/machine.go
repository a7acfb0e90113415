//go:build e2e

package infra

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// machine boots a LocalMachine once its Machine has bootstrap data, and takes its Node away when it is deleted.
func (p *Provider) machine(ctx context.Context, object *unstructured.Unstructured) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return p.release(ctx, object, nodeName(object.GetNamespace(), object.GetName(), 0))
	}
	machine := &clusterv1.Machine{}
	cluster, ok, err := p.owner(ctx, object, machine)
	if err != nil || !ok || machine.Spec.Bootstrap.DataSecretName == nil || isProvisioned(object) {
		return err
	}
	before := object.DeepCopy()
	if controllerutil.AddFinalizer(object, finalizer) {
		return p.client.Patch(ctx, object, client.MergeFrom(before))
	}
	_, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
	// clusterctl move takes the specs along, and no status: a machine that has a providerID is up.
	if id, _, _ := unstructured.NestedString(object.Object, "spec", "providerID"); id == "" {
		boot := Boot{Machine: machine.Name, UID: machine.UID, ControlPlane: controlPlane}
		if err := p.boot(ctx, boot, cluster, *machine.Spec.Bootstrap.DataSecretName); err != nil {
			return err
		}
	}
	n := node{
		name: nodeName(object.GetNamespace(), object.GetName(), 0), version: machine.Spec.Version, controlPlane: controlPlane,
	}
	if err := p.createNode(ctx, client.ObjectKeyFromObject(cluster), n); err != nil {
		return err
	}
	if controlPlane && p.workloads != nil {
		if err := p.setExpiry(ctx, machine); err != nil {
			return err
		}
	}
	if err := set(object, n.providerID(), "spec", "providerID"); err != nil {
		return err
	}
	if p.workloads != nil {
		addresses := []any{map[string]any{"type": "InternalIP", "address": "10.98.0.1"}}
		if err := set(object, addresses, "status", "addresses"); err != nil {
			return err
		}
	}
	if err := provisioned(object); err != nil {
		return err
	}
	return p.patch(ctx, object, before)
}

// boot reads bootstrap data and records that a machine came up with it.
func (p *Provider) boot(ctx context.Context, b Boot, cluster *clusterv1.Cluster, secretName string) error {
	secret := &corev1.Secret{}
	if err := p.live.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: secretName}, secret); err != nil {
		return fmt.Errorf("reading bootstrap data of %s: %w", b.Machine, err)
	}
	b.Cluster = client.ObjectKeyFromObject(cluster)
	b.Format, b.Data, b.At = string(secret.Data["format"]), secret.Data["value"], now()
	p.record(b)
	return nil
}

// setExpiry notes when the API server's certificate expires: Cluster API would ask the API server of that one Node.
func (p *Provider) setExpiry(ctx context.Context, machine *clusterv1.Machine) error {
	config := &bootstrapv1.KubeadmConfig{}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}
	if err := p.live.Get(ctx, key, config); err != nil {
		return fmt.Errorf("reading KubeadmConfig of %s: %w", machine.Name, err)
	}
	before := config.DeepCopy()
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation] = now().AddDate(1, 0,
		0).UTC().Format(time.RFC3339)
	if err := p.client.Patch(ctx, config, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patching KubeadmConfig of %s: %w", machine.Name, err)
	}
	return nil
}

// pool boots a LocalMachinePool once its MachinePool has bootstrap data, and follows its replicas.
func (p *Provider) pool(ctx context.Context, object *unstructured.Unstructured) error {
	pool := &clusterv1.MachinePool{}
	cluster, ok, err := p.owner(ctx, object, pool)
	if !object.GetDeletionTimestamp().IsZero() {
		existing, _, _ := unstructured.NestedInt64(object.Object, "status", "replicas")
		names := make([]string, 0, existing)
		for i := range existing {
			names = append(names, nodeName(object.GetNamespace(), object.GetName(), int(i)+1))
		}
		return p.release(ctx, object, names...)
	}
	if err != nil || !ok || pool.Spec.Template.Spec.Bootstrap.DataSecretName == nil || pool.Spec.Replicas == nil {
		return err
	}
	before := object.DeepCopy()
	if controllerutil.AddFinalizer(object, finalizer) {
		return p.client.Patch(ctx, object, client.MergeFrom(before))
	}
	if existing, _, _ := unstructured.NestedInt64(object.Object, "status", "replicas"); isProvisioned(object) &&
		existing == int64(*pool.Spec.Replicas) {
		return nil
	}
	if ids, _, _ := unstructured.NestedSlice(object.Object, "spec", "providerIDList"); len(ids) == 0 {
		boot := Boot{Machine: pool.Name, UID: pool.UID}
		if err := p.boot(ctx, boot, cluster, *pool.Spec.Template.Spec.Bootstrap.DataSecretName); err != nil {
			return err
		}
	}
	var ids []any
	for i := range *pool.Spec.Replicas {
		n := node{name: nodeName(object.GetNamespace(), object.GetName(), int(i)+1), version: pool.Spec.Template.Spec.Version}
		if err := p.createNode(ctx, client.ObjectKeyFromObject(cluster), n); err != nil {
			return err
		}
		ids = append(ids, n.providerID())
	}
	if err := set(object, ids, "spec", "providerIDList"); err != nil {
		return err
	}
	if err := set(object, int64(*pool.Spec.Replicas), "status", "replicas"); err != nil {
		return err
	}
	// For a MachinePool Cluster API v1.14 still reads the field of the v1beta1 contract.
	if err := set(object, true, "status", "ready"); err != nil {
		return err
	}
	if err := provisioned(object); err != nil {
		return err
	}
	return p.patch(ctx, object, before)
}

// release takes Nodes away and lets an object go.
func (p *Provider) release(ctx context.Context, object *unstructured.Unstructured, nodes ...string) error {
	for _, name := range nodes {
		if err := p.deleteNode(ctx, name); err != nil {
			return err
		}
	}
	before := object.DeepCopy()
	if !controllerutil.RemoveFinalizer(object, finalizer) {
		return nil
	}
	return client.IgnoreNotFound(p.client.Patch(ctx, object, client.MergeFrom(before)))
}

func now() time.Time { return time.Now() } //nolint:forbidigo // of the boots that are recorded
