package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimeserver "sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// nullOptions configure a program that does nothing.
type nullOptions struct {
	kind, kubeconfig, health, pprof, certDir string
	port                                     int
}

// serveManager runs a manager of controller-runtime that caches what the product caches, whole but for the managed
// fields, reconciles nothing, and has a webhook that allows everything.
func (n nullOptions) serveManager(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", n.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading kubeconfig: %w", err)
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return err
	}
	generated, err := labels.NewRequirement(contract.LabelGenerated, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("building selector: %w", err)
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme, Logger: logr.Discard(), HealthProbeBindAddress: n.health, PprofBindAddress: n.pprof,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labels.NewSelector().Add(*generated)}},
		},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: n.port, CertDir: n.certDir}),
	})
	if err != nil {
		return fmt.Errorf("setting up manager: %w", err)
	}
	machines := &metav1.PartialObjectMetadata{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	for _, object := range []client.Object{
		&clusterv1.Cluster{}, &clusterv1.MachineDeployment{}, &clusterv1.MachinePool{}, &controlplanev1.KubeadmControlPlane{},
		&bootstrapv1.KubeadmConfigTemplate{}, &bootstrapv1.KubeadmConfig{}, &corev1.Secret{}, machines,
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("caching %T: %w", object, err)
		}
	}
	allow := func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }
	mgr.GetWebhookServer().Register(controlPlanePath, &admission.Webhook{Handler: admission.HandlerFunc(allow)})
	if err := mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(r.Context()) {
			return fmt.Errorf("caches are not synced yet")
		}
		return nil
	}); err != nil {
		return fmt.Errorf("adding ready check: %w", err)
	}
	return mgr.Start(ctx)
}

// serveHooks serves a handler on Cluster API's server that does nothing with the request that the server has decoded.
func (n nullOptions) serveHooks(ctx context.Context) error {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return fmt.Errorf("building catalog of hooks: %w", err)
	}
	server, err := runtimeserver.New(runtimeserver.Options{
		Catalog: catalog, Host: "127.0.0.1", Port: n.port, CertDir: n.certDir,
	})
	if err != nil {
		return fmt.Errorf("setting up the server: %w", err)
	}
	if err := server.AddExtensionHandler(runtimeserver.ExtensionHandler{
		Hook: runtimehooksv1.GeneratePatches, Name: contract.HandlerGeneratePatches,
		HandlerFunc: func(_ context.Context, _ *runtimehooksv1.GeneratePatchesRequest,
			response *runtimehooksv1.GeneratePatchesResponse,
		) {
			response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
		},
	}); err != nil {
		return fmt.Errorf("adding handler: %w", err)
	}
	return server.Start(ctx)
}
