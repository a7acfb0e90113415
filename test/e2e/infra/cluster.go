//go:build e2e

package infra

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// cluster gives a LocalCluster its endpoint.
func (p *Provider) cluster(ctx context.Context, object *unstructured.Unstructured) error {
	cluster, ok, err := p.owner(ctx, object, &clusterv1.Cluster{})
	if err != nil || !ok || !object.GetDeletionTimestamp().IsZero() {
		return err
	}
	if p.workloads == nil {
		return p.givenEndpoint(ctx, object)
	}
	if err := p.externalEtcd(ctx, cluster); err != nil {
		return err
	}
	if _, hold := object.GetAnnotations()[HoldEndpoint]; hold || isProvisioned(object) {
		return nil
	}
	host, port, err := p.workloads.Ensure(ctx, client.ObjectKeyFromObject(cluster), p.live)
	if err != nil {
		return err
	}
	before := object.DeepCopy()
	endpoint := map[string]any{"host": host, "port": int64(port)}
	if err := set(object, endpoint, "spec", "controlPlaneEndpoint"); err != nil {
		return err
	}
	if err := provisioned(object); err != nil {
		return err
	}
	return p.patch(ctx, object, before)
}

// givenEndpoint provisions a LocalCluster whose endpoint is that of real machines.
func (p *Provider) givenEndpoint(ctx context.Context, object *unstructured.Unstructured) error {
	if isProvisioned(object) {
		return nil
	}
	if host, _, _ := unstructured.NestedString(object.Object, "spec", "controlPlaneEndpoint", "host"); host == "" {
		return fmt.Errorf(
			"provisioning LocalCluster %s: spec.controlPlaneEndpoint has no host; it is that of real machines, so name it",
			client.ObjectKeyFromObject(object))
	}
	before := object.DeepCopy()
	if err := provisioned(object); err != nil {
		return err
	}
	return p.patch(ctx, object, before)
}

// externalEtcd creates the certificates by which a control plane would reach its etcd, if they are not there.
func (p *Provider) externalEtcd(ctx context.Context, cluster *clusterv1.Cluster) error {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-etcd"}
	err := p.live.Get(ctx, key, &corev1.Secret{})
	if err == nil || client.IgnoreNotFound(err) != nil {
		return err
	}
	authority, err := pki.New("etcd")
	if err != nil {
		return err
	}
	certificate, private, err := authority.Issue("apiserver-etcd-client")
	if err != nil {
		return err
	}
	for name, data := range map[string]map[string][]byte{
		"-apiserver-etcd-client": {corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: private},
		"-etcd":                  {corev1.TLSCertKey: authority.PEM},
	} {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: cluster.Namespace, Name: cluster.Name + name,
				Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
			},
			Type: clusterv1.ClusterSecretType,
			Data: data,
		}
		if err := client.IgnoreAlreadyExists(p.client.Create(ctx, secret)); err != nil {
			return fmt.Errorf("creating Secret %s: %w", secret.Name, err)
		}
	}
	return nil
}
