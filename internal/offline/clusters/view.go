package clusters

import (
	"math"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// clusterView reads a Cluster, v1beta1 or v1beta2. Fields with an unresolved variable of clusterctl are omitted and
// named.
func clusterView(o *manifest.Object) (view intent.Cluster, unresolved []finding.Place) {
	spec := Dig(o.Value(), "spec")
	network := Dig(spec, "clusterNetwork")
	text := func(field finding.Place, value any) string {
		s, _ := value.(string)
		if strings.Contains(s, "${") {
			unresolved = append(unresolved, field)
			return ""
		}
		return s
	}
	blocks := func(field string) []string {
		value := Dig(network, field)["cidrBlocks"]
		path := finding.Field("spec", "clusterNetwork", field, "cidrBlocks")
		list, isList := value.([]any)
		if !isList {
			text(path, value)
			return nil
		}
		var cidrs []string
		for i, item := range list {
			if cidr := text(path.Index(i), item); cidr != "" {
				cidrs = append(cidrs, cidr)
			}
		}
		return cidrs
	}
	_, annotated := o.Annotations()[clusterv1.PausedAnnotation]
	_, topology := spec["topology"].(map[string]any)
	view = intent.Cluster{
		Namespace:     manifest.PartOfName(o.Namespace()),
		Name:          manifest.PartOfName(o.Name()),
		Annotations:   o.Annotations(),
		PodCIDRs:      blocks("pods"),
		ServiceCIDRs:  blocks("services"),
		ServiceDomain: text(finding.Field("spec", "clusterNetwork", "serviceDomain"), network["serviceDomain"]),
		EndpointHost:  text(endpointHost(), Dig(spec, "controlPlaneEndpoint")["host"]),
		Topology:      topology,
		Enabled:       intent.IsEnabled(o.Labels()),
		Unclear:       intent.CheckLabel(o.Labels()),
		Paused:        spec["paused"] == true || annotated,
	}
	view.EndpointPort = port(Dig(spec, "controlPlaneEndpoint"))
	view.Infrastructure.Kind, _ = Dig(spec, "infrastructureRef")["kind"].(string)
	view.Infrastructure.Name, _ = Dig(spec, "infrastructureRef")["name"].(string)
	view.Provisioned = true // nothing will change in a manifest
	view.ControlPlaneKind, _ = Dig(spec, "controlPlaneRef")["kind"].(string)
	view.ControlPlaneName, _ = Dig(spec, "controlPlaneRef")["name"].(string)
	return view, unresolved
}

// endpointHost is the place of the host of the control-plane endpoint.
func endpointHost() finding.Place { return finding.Field("spec", "controlPlaneEndpoint", "host") }

// port returns the port of an endpoint, 0 if there is none or it is an unresolved variable.
func port(endpoint map[string]any) int32 {
	if n, ok := endpoint["port"].(int64); ok && 0 < n && n <= math.MaxUint16 {
		return int32(n)
	}
	return 0
}

// Dig returns the mapping at a path, nil if there is none.
func Dig(value map[string]any, path ...string) map[string]any {
	for _, key := range path {
		value, _ = value[key].(map[string]any)
	}
	return value
}

// Override is the proxy Secret that a pool names.
func Override(worker *manifest.Object) string {
	if !IsPool(worker) {
		return ""
	}
	return worker.Annotations()[contract.AnnotationSecret]
}

// Unresolved names fields with an unresolved variable of clusterctl.
func Unresolved(fields []finding.Place) string {
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.String()
	}
	return strings.Join(names, ", ")
}

// IsUnresolved reports whether the value at a place is, or contains, an unresolved variable of clusterctl. The variable
// may be in another object from which the value comes.
func IsUnresolved(place finding.Place, fields []finding.Place) bool {
	return place.Object == "" && slices.ContainsFunc(fields, func(field finding.Place) bool {
		return len(place.Path) > 0 && len(field.Path) >= len(place.Path) &&
			slices.Equal(field.Path[:len(place.Path)], place.Path)
	})
}
