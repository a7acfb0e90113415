package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/hack/measure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/caches"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	namespace      = "default"
	machines       = "machines"
	proxySecret    = "proxy"
	proxyNamespace = mgmt.SystemNamespace
	// writers is how many requests the seed and the floor of a fan-out send at once. The product has as many workers.
	writers = 10
)

// world is a management cluster.
type world struct {
	options

	// managerEnv and hooksEnv are the environments of their manifests.
	managerEnv, hooksEnv []string
	// created is how many Clusters it has.
	created atomic.Int64

	cluster    *mgmt.Cluster
	client     client.Client
	folder     string
	kubeconfig string
	audit      audit
	runs       int
	began      time.Time
	// written is when the proxy Secret was last sent to the API server.
	written time.Time
}

func newWorld(ctx context.Context, o options) (w *world, err error) {
	w = &world{options: o, began: time.Now()}
	if w.managerEnv, err = measure.Environment("config/manager/manager.yaml"); err != nil {
		return nil, err
	}
	if w.hooksEnv, err = measure.Environment("config/extension/resources/hooks.yaml"); err != nil {
		return nil, err
	}
	if w.folder, err = os.MkdirTemp("", "scale-"); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	defer func(made *world) {
		if err != nil {
			err = errors.Join(err, made.close())
		}
	}(w)
	w.audit.path = filepath.Join(w.folder, "audit.log")
	if w.cluster, err = mgmt.Start(ctx, mgmt.Options{Progress: w.progress, AuditLog: w.audit.path}); err != nil {
		return nil, err
	}
	account, err := w.cluster.InstallProduct(ctx, ".")
	if err != nil {
		return nil, err
	}
	w.kubeconfig = filepath.Join(w.folder, "kubeconfig")
	if err := mgmt.WriteKubeconfig(w.kubeconfig, account); err != nil {
		return nil, err
	}
	scheme, err := caches.NewScheme()
	if err != nil {
		return nil, err
	}
	config := w.cluster.Config()
	config.QPS = -1
	if w.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	for _, object := range []client.Object{
		vocabulary.MachineTemplate(namespace, machines),
		w.secret("proxy-1.example.com"),
	} {
		if err := w.client.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("creating what Clusters share: %w", err)
		}
	}
	return w, nil
}

// progress says what is being done, and after how many seconds.
func (w *world) progress(text string) {
	fmt.Fprintf(os.Stderr, "scale: %5.0f s %s\n", time.Since(w.began).Seconds(), text)
}

func (w *world) close() error {
	var err error
	if w.cluster != nil {
		err = w.cluster.Stop()
	}
	return errors.Join(err, os.RemoveAll(w.folder))
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%05d", i) }

// secret is the proxy Secret of all Clusters.
func (w *world) secret(host string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: proxyNamespace, Name: proxySecret,
			Labels: map[string]string{contract.LabelProxySecret: ""},
		},
		StringData: map[string]string{
			"httpProxy": "http://" + host + ":3128", "noProxy": ".corp.example.com,10.20.0.0/16",
			"username": "node", "password": "s3cr%t",
		},
	}
}

// create creates a Cluster with all that belongs to it, in the order of a manifest.
func (w *world) create(ctx context.Context, name string) error {
	objects, err := classic(name, w.pools)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := w.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s of %s: %w", object.GetName(), name, err)
		}
	}
	w.created.Add(1)
	return nil
}

// classic returns a Cluster with bootstrap specs in the shape that people use.
func classic(name string, pools int) ([]client.Object, error) {
	request, err := hookrequests.Generate(hookrequests.Options{Pools: 1})
	if err != nil {
		return nil, err
	}
	const controlPlaneItem, workerItem = 1, 3
	c := vocabulary.NewClassic(namespace, name, machines)
	c.Cluster.Labels = map[string]string{
		clusterv1.ClusterNameLabel: name,
		contract.LabelEnabled:      contract.LabelEnabledValue,
	}
	owned := map[string]string{clusterv1.ClusterNameLabel: name}
	var controlPlane controlplanev1.KubeadmControlPlaneTemplate
	if err := json.Unmarshal(request.Items[controlPlaneItem].Object.Raw, &controlPlane); err != nil {
		return nil, fmt.Errorf("reading the template of a control plane: %w", err)
	}
	c.ControlPlane.Labels = owned
	c.ControlPlane.Spec.KubeadmConfigSpec = controlPlane.Spec.Template.Spec.KubeadmConfigSpec
	c.ControlPlane.Spec.Rollout = controlPlane.Spec.Template.Spec.Rollout
	objects := []client.Object{c.Cluster, c.ControlPlane}
	for i := range pools {
		var template bootstrapv1.KubeadmConfigTemplate
		if err := json.Unmarshal(request.Items[workerItem].Object.Raw, &template); err != nil {
			return nil, fmt.Errorf("reading the template of a worker: %w", err)
		}
		template.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-md-%d", name, i), Labels: owned}
		template.TypeMeta = metav1.TypeMeta{}
		deployment := c.Deployment.DeepCopy()
		deployment.Name, deployment.Labels = template.Name, owned
		deployment.Spec.Template.Spec = vocabulary.MachineSpec(name, machines, "KubeadmConfigTemplate", template.Name)
		objects = append(objects, &template, deployment)
	}
	return objects, nil
}

// condition returns whether a Cluster says that it is configured.
func (w *world) configured(ctx context.Context, name string) (bool, error) {
	cluster := &clusterv1.Cluster{}
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster); err != nil {
		return false, err
	}
	for _, condition := range cluster.Status.Conditions {
		if condition.Type == contract.ConditionProxyConfigured {
			return condition.Status == metav1.ConditionTrue, nil
		}
	}
	return false, nil
}

// raw returns an object as the API server has it.
func (w *world) raw(ctx context.Context, apiVersion, kind, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	return object, w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
}

// each calls f for 0 to n-1, as many at once as the product has workers, and returns the first error.
func each(n int, f func(i int) error) error { return some(writers, n, f) }

// some calls f for 0 to n-1, as many at once as atOnce says, and returns the first error.
func some(atOnce, n int, f func(i int) error) error {
	var (
		next  atomic.Int64
		group sync.WaitGroup
		first atomic.Pointer[error]
	)
	for range atOnce {
		group.Go(func() {
			for i := int(next.Add(1) - 1); i < n && first.Load() == nil; i = int(next.Add(1) - 1) {
				if err := f(i); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}
