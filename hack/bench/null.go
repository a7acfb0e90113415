package main

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimeserver "sigs.k8s.io/cluster-api/exp/runtime/server"
	ctrl "sigs.k8s.io/controller-runtime"
)

// serveNull serves handlers on Cluster API's server that do nothing with what it has decoded.
func serveNull(port int, certDir string) error {
	ctrl.SetLogger(logr.Discard())
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return fmt.Errorf("building catalog of hooks: %w", err)
	}
	server, err := runtimeserver.New(runtimeserver.Options{
		Catalog: catalog, Host: "127.0.0.1", Port: port,
		CertDir: certDir,
	})
	if err != nil {
		return fmt.Errorf("setting up the server: %w", err)
	}
	for _, handler := range []runtimeserver.ExtensionHandler{
		{
			Hook: runtimehooksv1.GeneratePatches, Name: "generate-patches",
			HandlerFunc: func(_ context.Context, _ *runtimehooksv1.GeneratePatchesRequest,
				response *runtimehooksv1.GeneratePatchesResponse,
			) {
				response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
			},
		},
		{
			Hook: runtimehooksv1.ValidateTopology, Name: "validate-topology",
			HandlerFunc: func(_ context.Context, _ *runtimehooksv1.ValidateTopologyRequest,
				response *runtimehooksv1.ValidateTopologyResponse,
			) {
				response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
			},
		},
	} {
		if err := server.AddExtensionHandler(handler); err != nil {
			return fmt.Errorf("adding handler: %w", err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return server.Start(ctx)
}
