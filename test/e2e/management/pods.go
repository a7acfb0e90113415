//go:build e2e

package management

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// ProviderLabel is the value of label cluster.x-k8s.io/provider of all objects of the product.
const ProviderLabel = "runtime-extension-capi-proxy-patcher"

// Pods stands in for what a cluster with nodes has, for the product only. Deployments that somebody has created, with
// clusterctl say, run as one process each, whatever their replicas, with the program of their image, their arguments
// and their ServiceAccount. Their status says what becomes of them. Webhook configurations call the process and not a
// Service, once it is ready, and Certificates have Secrets that the authority of the cluster has signed.
type Pods struct {
	cluster *Cluster
	program func(image string) (string, error)
	cancel  context.CancelFunc
	ended   chan struct{}

	mu      sync.Mutex
	running map[types.NamespacedName]*pod
	// ports are those of Deployments, which a new one of the same name keeps, as behind a Service.
	ports   map[types.NamespacedName]int
	problem error // the last one, or nil
	// doomed are Deployments whose processes are to be killed.
	doomed []types.NamespacedName
}

// pod is the process of a Deployment.
type pod struct {
	*Process

	uid   types.UID
	image string
	// port is that of the webhooks or hooks.
	port int
	// diagnostics is the address of the metrics.
	diagnostics string
}

// RunPods stands in for Pods until ctx ends or Close is called. program returns the program of an image.
func (c *Cluster) RunPods(ctx context.Context, program func(image string) (string, error)) *Pods {
	ctx, cancel := context.WithCancel(ctx)
	p := &Pods{
		cluster: c, program: program, cancel: cancel, ended: make(chan struct{}),
		running: map[types.NamespacedName]*pod{}, ports: map[types.NamespacedName]int{},
	}
	go func() {
		defer close(p.ended)
		for ctx.Err() == nil {
			err := p.look(ctx)
			p.mu.Lock()
			p.problem = err
			p.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return p
}

// Close ends all processes.
func (p *Pods) Close() {
	p.cancel()
	<-p.ended
	for _, pod := range p.running {
		pod.Stop()
	}
}

// Problem returns why something that should run does not, or nil.
func (p *Pods) Problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

// Running returns the images of the Deployments that run, by their names.
func (p *Pods) Running() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]string{}
	for key, pod := range p.running {
		found[key.String()] = pod.image
	}
	return found
}

// Port returns the port of the webhooks or hooks of a Deployment that runs.
func (p *Pods) Port(namespace, name string) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod := p.running[types.NamespacedName{Namespace: namespace, Name: name}]
	if pod == nil {
		return 0, fmt.Errorf("no process of Deployment %s/%s", namespace, name)
	}
	return pod.port, nil
}

// Diagnostics returns the address of the metrics of a process that runs, or "".
func (p *Pods) Diagnostics(namespace, name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.running[types.NamespacedName{Namespace: namespace, Name: name}]; pod != nil {
		return pod.diagnostics
	}
	return ""
}

// Kill ends the process of a Deployment in the middle of whatever it does. It is started again, as by a kubelet.
func (p *Pods) Kill(namespace, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doomed = append(p.doomed, types.NamespacedName{Namespace: namespace, Name: name})
}

// execute kills what Kill has asked for.
func (p *Pods) execute() {
	p.mu.Lock()
	doomed := p.doomed
	p.doomed = nil
	p.mu.Unlock()
	for _, key := range doomed {
		if pod := p.running[key]; pod != nil {
			pod.Kill()
			p.set(key, nil)
		}
	}
}

func (p *Pods) set(key types.NamespacedName, pod *pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod == nil {
		delete(p.running, key)
	} else {
		p.running[key] = pod
	}
}

// look brings the processes and what depends on them in line with the objects that there are.
func (p *Pods) look(ctx context.Context) error {
	p.execute()
	if err := p.issue(ctx); err != nil {
		return err
	}
	var deployments appsv1.DeploymentList
	if err := p.cluster.admin.List(ctx, &deployments,
		client.MatchingLabels{clusterv1.ProviderNameLabel: ProviderLabel}); err != nil {
		return err
	}
	gone := maps.Clone(p.running)
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		key := client.ObjectKeyFromObject(deployment)
		if pod := p.running[key]; pod != nil && pod.uid == deployment.UID && *deployment.Spec.Replicas > 0 {
			delete(gone, key)
		}
	}
	for key, pod := range gone {
		pod.Stop()
		p.set(key, nil)
	}
	for i := range deployments.Items {
		if err := p.run(ctx, &deployments.Items[i]); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// run starts the process of a Deployment if it does not run, and says in the status what there is.
func (p *Pods) run(ctx context.Context, deployment *appsv1.Deployment) error {
	key := client.ObjectKeyFromObject(deployment)
	if *deployment.Spec.Replicas > 0 && p.running[key] == nil {
		started, err := p.start(ctx, deployment)
		if err != nil {
			return err
		}
		p.set(key, started)
	}
	if pod := p.running[key]; pod != nil && deployment.Spec.Template.Spec.Containers[0].Args[0] == "manager" {
		if err := p.callWebhooks(ctx, pod); err != nil {
			return err
		}
	}
	replicas := *deployment.Spec.Replicas
	if deployment.Status.Replicas == replicas && deployment.Status.ObservedGeneration == deployment.Generation {
		return nil
	}
	available := metav1.ConditionFalse
	if replicas > 0 {
		available = metav1.ConditionTrue
	}
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas,
		AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{{
			Type:   appsv1.DeploymentAvailable,
			Status: corev1.ConditionStatus(available),
		}},
	}
	return p.cluster.admin.Status().Update(ctx, deployment)
}

// start starts the process of a Deployment and returns when it is ready.
func (p *Pods) start(ctx context.Context, deployment *appsv1.Deployment) (*pod, error) {
	c, spec := p.cluster, deployment.Spec.Template.Spec
	container := spec.Containers[0]
	program, err := p.program(container.Image)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(deployment)
	if p.ports[key] == 0 {
		if p.ports[key], err = ports.Free(ctx); err != nil {
			return nil, err
		}
	}
	port := p.ports[key]
	health, err := ports.Address(ctx)
	if err != nil {
		return nil, err
	}
	var diagnostics string
	args := append([]string{}, container.Args...)
	if args[0] == "hooks" {
		args = append(args, "--bind-address", "127.0.0.1", "--port", strconv.Itoa(port), "--cert-dir", c.certificates(),
			"--health-addr", health)
	} else {
		config, err := mgmt.ServiceAccountConfig(ctx, c.config, deployment.Namespace, spec.ServiceAccountName)
		if err != nil {
			return nil, err
		}
		kubeconfig := filepath.Join(c.dir, string(deployment.UID)+".kubeconfig")
		if err := mgmt.WriteKubeconfig(kubeconfig, config); err != nil {
			return nil, err
		}
		args = append(args, c.managerFlags(kubeconfig, deployment.Namespace, health, port)...)
	}
	if diagnostics, err = ports.Address(ctx); err != nil {
		return nil, err
	}
	args = append(args, "--diagnostics-address", diagnostics, "--insecure-diagnostics")
	process := c.newProcess(deployment.Namespace+"-"+deployment.Name, program, health, args...)
	if err := process.Start(ctx); err != nil {
		process.Stop()
		return nil, err
	}
	return &pod{Process: process, uid: deployment.UID, image: container.Image, port: port, diagnostics: diagnostics}, nil
}

// callWebhooks has the API server ask the webhooks of a process.
func (p *Pods) callWebhooks(ctx context.Context, pod *pod) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "MutatingWebhookConfigurationList",
	})
	if err := p.cluster.admin.List(ctx, list,
		client.MatchingLabels{clusterv1.ProviderNameLabel: ProviderLabel}); err != nil {
		return err
	}
	for i := range list.Items {
		configuration := &list.Items[i]
		if !hasService(configuration.Object) {
			continue
		}
		p.cluster.localize(configuration.Object, pod.port)
		if err := p.cluster.admin.Update(ctx, configuration); err != nil {
			return err
		}
	}
	return nil
}

// hasService reports whether a webhook of a configuration calls a Service.
func hasService(configuration map[string]any) bool {
	webhooks, _, _ := unstructured.NestedSlice(configuration, "webhooks")
	for _, webhook := range webhooks {
		if _, found, _ := unstructured.NestedMap(webhook.(map[string]any), "clientConfig", "service"); found {
			return true
		}
	}
	return false
}

// issue makes the Secrets of Certificates of the product.
func (p *Pods) issue(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "CertificateList"})
	if err := p.cluster.admin.List(ctx, list,
		client.MatchingLabels{clusterv1.ProviderNameLabel: ProviderLabel}); err != nil {
		return err
	}
	for _, certificate := range list.Items {
		name, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
		hosts, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
		signed, key, err := p.cluster.Authority.Issue(certificate.GetName(), append(hosts, "127.0.0.1")...)
		if err != nil {
			return err
		}
		err = p.cluster.admin.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: certificate.GetNamespace(), Name: name},
			Type:       corev1.SecretTypeTLS,
			Data: map[string][]byte{
				corev1.TLSCertKey: signed, corev1.TLSPrivateKeyKey: key,
				corev1.ServiceAccountRootCAKey: p.cluster.Authority.PEM,
			},
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// CertManagerCRDs are those of cert-manager that manifests of the product, and clusterctl, use. Nobody reads their
// objects but Pods.
func CertManagerCRDs() []*apiextensionsv1.CustomResourceDefinition {
	kinds := map[string]string{"Certificate": "certificates", "Issuer": "issuers"}
	found := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(kinds))
	for kind, plural := range kinds {
		found = append(found, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".cert-manager.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "cert-manager.io", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{
					Kind: kind, ListKind: kind + "List", Plural: plural,
					Singular: strings.ToLower(kind),
				},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: new(true),
					}},
				}},
			},
		})
	}
	return found
}
