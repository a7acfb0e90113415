package clusters

import (
	"math"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// infrastructureOf adds the facts of the infrastructure cluster object of the input: networks and internal hosts, and
// the control-plane endpoint, which most templates set there. In a topology the ClusterClass names its kind, because
// Cluster API sets the reference later; its template may be patched and does not count.
func (m *Manifests) infrastructureOf(cluster *manifest.Object, view *settings.Cluster, unresolved *[]finding.Place) {
	if class, _ := m.Class(cluster); view.Topology && view.Infrastructure.Kind == "" && class != nil {
		view.Infrastructure.Kind = strings.TrimSuffix(TemplateKind(Dig(class.Value(), "spec", "infrastructure")), "Template")
	}
	view.Facts = infrastructure.Of(view.Infrastructure.Kind)
	o := m.Lookup(cluster.Namespace(), "", view.Infrastructure.Kind, view.Infrastructure.Name)
	if o == nil {
		return
	}
	view.Facts = infrastructure.Read(view.Infrastructure.Kind, manifest.PartOfName(view.Infrastructure.Name), o.Value())
	*unresolved = append(*unresolved, view.Facts.Unresolved...)
	if view.EndpointHost != "" {
		return
	}
	endpoint := Dig(o.Value(), "spec", "controlPlaneEndpoint")
	host, _ := endpoint["host"].(string)
	if strings.Contains(host, "${") {
		*unresolved = append(*unresolved, finding.Field("spec", "controlPlaneEndpoint", "host").Of(o.String()))
		return
	}
	view.EndpointHost, view.EndpointPort = host, port(endpoint)
	if host == "" {
		view.EndpointHost = view.Facts.EndpointHost
	}
}

// port returns the port of an endpoint, 0 if there is none or it is an unresolved variable.
func port(endpoint map[string]any) int32 {
	if n, ok := endpoint["port"].(int64); ok && 0 < n && n <= math.MaxUint16 {
		return int32(n)
	}
	return 0
}
