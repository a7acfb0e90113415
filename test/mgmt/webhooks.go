package mgmt

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Webhooks are the webhook configurations of a kustomization, rewritten for a server that is a process on loopback and
// not a Pod behind a Service: Host and Port are free to listen at, and CertDir holds tls.crt and tls.key for them,
// which the configurations trust.
type Webhooks struct {
	Host    string
	Port    int
	CertDir string
	// Configurations may be changed before Install.
	Configurations []*admissionregistrationv1.MutatingWebhookConfiguration

	options *envtest.WebhookInstallOptions
}

// WebhookTimeout is for how many seconds an API server of tests waits for a webhook: the most that Kubernetes allows.
// With the few of the manifests a busy machine would admit objects without the product, as failurePolicy Ignore asks.
const WebhookTimeout = 30

// PrepareWebhooks builds a kustomization and extracts its mutating webhook configurations. Close removes the
// certificate.
func PrepareWebhooks(dir string) (*Webhooks, error) {
	objects, err := Kustomize(dir)
	if err != nil {
		return nil, err
	}
	options := &envtest.WebhookInstallOptions{LocalServingHost: "127.0.0.1"}
	for _, object := range objects {
		if object.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, configuration); err != nil {
			return nil, fmt.Errorf("decoding webhook configuration of %s: %w", dir, err)
		}
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].TimeoutSeconds = new(int32(WebhookTimeout))
		}
		options.MutatingWebhooks = append(options.MutatingWebhooks, configuration)
	}
	if len(options.MutatingWebhooks) == 0 {
		return nil, fmt.Errorf("building %s: it has no MutatingWebhookConfiguration", dir)
	}
	if err := options.PrepWithoutInstalling(); err != nil {
		return nil, fmt.Errorf("preparing webhooks of %s: %w", dir, err)
	}
	return &Webhooks{
		Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		Configurations: options.MutatingWebhooks, options: options,
	}, nil
}

// Install creates webhook configurations. The API server heeds them a moment later.
func (c *Cluster) Install(ctx context.Context,
	configurations ...*admissionregistrationv1.MutatingWebhookConfiguration,
) error {
	creator, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return fmt.Errorf("installing webhooks: %w", err)
	}
	for _, configuration := range configurations {
		if err := creator.Create(ctx, configuration); err != nil {
			return fmt.Errorf("installing webhooks %s: %w", configuration.Name, err)
		}
	}
	return nil
}

// Close removes the certificate.
func (w *Webhooks) Close() error {
	if err := w.options.Cleanup(); err != nil {
		return fmt.Errorf("removing certificate of webhooks: %w", err)
	}
	return nil
}

// needsPods reports whether an object is of use only in a cluster with Pods: certificates that cert-manager would
// issue, and webhook configurations that point to a Service. PrepareWebhooks is for those.
func needsPods(object *unstructured.Unstructured) bool {
	switch object.GroupVersionKind().Group {
	case "cert-manager.io", admissionregistrationv1.GroupName:
		return true
	}
	return false
}
