package hooks

import (
	"fmt"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimeserver "sigs.k8s.io/cluster-api/exp/runtime/server"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// timeoutSeconds is how long Cluster API waits for an answer. An answer takes milliseconds; a short timeout lets
// Cluster API retry sooner when a server is gone.
const timeoutSeconds = 10

// NewServer returns Cluster API's runtime server with the handlers, to be started or added to a manager. It sets the
// catalog of o.
func (h *Handlers) NewServer(o runtimeserver.Options) (*runtimeserver.Server, error) {
	o.Catalog = runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(o.Catalog); err != nil {
		return nil, fmt.Errorf("building catalog of hooks: %w", err)
	}
	server, err := runtimeserver.New(o)
	if err != nil {
		return nil, fmt.Errorf("setting up the server of hooks: %w", err)
	}
	for _, handler := range []runtimeserver.ExtensionHandler{
		{
			Hook: runtimehooksv1.DiscoverVariables, Name: contract.HandlerDiscoverVariables,
			HandlerFunc: h.DiscoverVariables,
		},
		{Hook: runtimehooksv1.GeneratePatches, Name: contract.HandlerGeneratePatches, HandlerFunc: h.GeneratePatches},
		{Hook: runtimehooksv1.ValidateTopology, Name: contract.HandlerValidateTopology, HandlerFunc: h.ValidateTopology},
	} {
		handler.TimeoutSeconds = new(int32(timeoutSeconds))
		handler.FailurePolicy = new(runtimehooksv1.FailurePolicyFail)
		if err := server.AddExtensionHandler(handler); err != nil {
			return nil, fmt.Errorf("adding handler %s: %w", handler.Name, err)
		}
	}
	return server, nil
}
