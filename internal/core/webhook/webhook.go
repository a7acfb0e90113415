// Package webhook patches bootstrap objects at admission, so that no write and no Machine precedes the patch. It
// decides with package plan, as the controller does, which patches what admission could not see.
//
// For a Cluster with a ClusterClass it only maintains topology-hold, which keeps a label change from replacing running
// Machines.
//
// The webhooks have no side effects, never deny a write, and are a function of the stored object, of the user's part of
// the new one, and of the Cluster: called again on their own answer, they change nothing.
package webhook

import (
	"errors"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// +kubebuilder:webhook:path=/mutate-controlplane-cluster-x-k8s-io-v1beta2-kubeadmcontrolplane,mutating=true,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,reinvocationPolicy=IfNeeded,timeoutSeconds=5,admissionReviewVersions=v1,groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=create;update,versions=v1beta2,name=kubeadmcontrolplane.capi-proxy-patcher.io
// +kubebuilder:webhook:path=/mutate-bootstrap-cluster-x-k8s-io-v1beta2-kubeadmconfigtemplate,mutating=true,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,reinvocationPolicy=IfNeeded,timeoutSeconds=5,admissionReviewVersions=v1,groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigtemplates,verbs=create;update,versions=v1beta2,name=kubeadmconfigtemplate.capi-proxy-patcher.io
// +kubebuilder:webhook:path=/mutate-bootstrap-cluster-x-k8s-io-v1beta2-kubeadmconfig,mutating=true,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,reinvocationPolicy=IfNeeded,timeoutSeconds=5,admissionReviewVersions=v1,groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigs,verbs=create;update,versions=v1beta2,name=kubeadmconfig.capi-proxy-patcher.io

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments,verbs=get;list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinepools,verbs=list
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigs,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=*,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Webhook answers admission requests for bootstrap objects and Clusters.
type Webhook struct {
	// Cached reads from the manager's cache, by the indexes of package plan. Objects that it does not find are read from
	// Live.
	Cached client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Memory identifies Windows pools by their machine templates.
	Memory *world.Memory
	// Scope selects the Clusters whose writes are patched. Other writes pass unchanged.
	Scope settings.Scope
	// Now is the clock.
	Now func() time.Time
	// Rendered counts decisions by outcome; nil counts none.
	Rendered func(outcome string)
}

// Server registers handlers by path.
type Server interface {
	Register(path string, handler http.Handler)
}

// Register registers the webhooks at server.
func (w *Webhook) Register(server Server) error {
	if w.Cached == nil || w.Live == nil || w.Memory == nil || w.Now == nil {
		return errors.New("webhook: Cached, Live, Memory and Now are required")
	}
	for _, kind := range []string{plan.KindControlPlane, plan.KindTemplate, plan.KindConfig, KindCluster, KindNames} {
		server.Register(Path(kind), w.handler(kind))
	}
	return nil
}

// Path returns the path under which the webhook for a kind is served.
func Path(kind string) string {
	switch kind {
	case plan.KindControlPlane:
		return "/mutate-controlplane-cluster-x-k8s-io-v1beta2-kubeadmcontrolplane"
	case KindCluster:
		return "/mutate-cluster-x-k8s-io-v1beta2-cluster"
	case KindNames:
		return "/warn-cluster-x-k8s-io-v1beta2"
	case plan.KindTemplate:
		return "/mutate-bootstrap-cluster-x-k8s-io-v1beta2-kubeadmconfigtemplate"
	default:
		return "/mutate-bootstrap-cluster-x-k8s-io-v1beta2-kubeadmconfig"
	}
}
