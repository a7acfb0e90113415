//go:build e2e

package management

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// manifests are what users install of one component, sorted by what has to happen with it where there are no Pods.
type manifests struct {
	crds     []*apiextensionsv1.CustomResourceDefinition
	objects  []*unstructured.Unstructured // Namespaces, RBAC and the like
	webhooks []*unstructured.Unstructured
	// args are those of the first container of the Deployment.
	args []string
	// account is the ServiceAccount of the Deployment.
	account client.ObjectKey
}

// load builds a kustomization. Webhooks and conversions point to port of loopback afterwards, and trust the cluster's
// authority.
func (c *Cluster) load(dir string, port int) (*manifests, error) {
	objects, err := mgmt.Kustomize(dir)
	if err != nil {
		return nil, err
	}
	m := &manifests{}
	for _, object := range objects {
		movable(object)
		switch object.GetKind() {
		case "Deployment":
			deployment := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
				return nil, fmt.Errorf("decoding Deployment %s of %s: %w", object.GetName(), dir, err)
			}
			pod := deployment.Spec.Template.Spec
			m.args = pod.Containers[0].Args
			m.account = client.ObjectKey{Namespace: deployment.Namespace, Name: pod.ServiceAccountName}
		case "CustomResourceDefinition":
			c.localize(object.Object, port)
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd); err != nil {
				return nil, fmt.Errorf("decoding %s of %s: %w", object.GetName(), dir, err)
			}
			m.crds = append(m.crds, crd)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ExtensionConfig",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding": // the guard comes with the webhooks
			c.localize(object.Object, port)
			m.webhooks = append(m.webhooks, object)
		case "Certificate", "Issuer", "Service", "NetworkPolicy", "PodDisruptionBudget":
		default:
			m.objects = append(m.objects, object)
		}
	}
	return m, nil
}

// movable gives an object the label that clusterctl init gives every object: clusterctl move finds kinds by it.
func movable(object *unstructured.Unstructured) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[clusterctlv1.ClusterctlLabel] = ""
	object.SetLabels(labels)
}

// localize replaces, in any depth, every clientConfig that names a Service by one with a URL of loopback. Admission
// webhooks get mgmt.WebhookTimeout.
func (c *Cluster) localize(value any, port int) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			c.localize(item, port)
		}
	case map[string]any:
		if config, ok := v["clientConfig"].(map[string]any); ok {
			if service, ok := config["service"].(map[string]any); ok {
				path, _ := service["path"].(string)
				v["clientConfig"] = map[string]any{
					"url":      "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + path,
					"caBundle": base64.StdEncoding.EncodeToString(c.Authority.PEM),
				}
				if _, ok := v["timeoutSeconds"]; ok {
					v["timeoutSeconds"] = int64(mgmt.WebhookTimeout)
				}
			}
		}
		for _, item := range v {
			c.localize(item, port)
		}
	}
}

// apply applies objects in their order.
func (c *Cluster) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	return mgmt.Apply(ctx, c.admin, objects)
}

// remove deletes objects.
func (c *Cluster) remove(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := client.IgnoreNotFound(c.admin.Delete(ctx, object.DeepCopy())); err != nil {
			return fmt.Errorf("deleting %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}
