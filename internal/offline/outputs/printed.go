package outputs

import (
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// ServiceEntries returns a ServiceEntry for each proxy, which makes it known to a mesh as a TCP destination outside. It
// holds no credential.
//
// Istio takes only names as hosts. The one of a proxy with an address is made of it, and Istio ignores it, because TCP
// has no names.
func (v Values) ServiceEntries() []any {
	var entries []any
	seen := map[string]bool{}
	for _, proxy := range []struct {
		name string
		url  proxyconfig.URL
	}{{"http-proxy", v.Input.Settings.HTTPProxy}, {"https-proxy", v.Input.Settings.HTTPSProxy}} {
		host, port := proxy.url.HostPort()
		key := host + ":" + strconv.Itoa(port)
		if host == "" || seen[key] {
			continue
		}
		seen[key] = true
		spec := object{
			"hosts": []string{host}, "resolution": "DNS", "location": "MESH_EXTERNAL",
			"ports": []object{{"number": port, "name": "tcp", "protocol": "TCP"}},
		}
		if address, err := netip.ParseAddr(host); err == nil {
			named := strings.NewReplacer(".", "-", ":", "-").Replace(address.StringExpanded())
			spec["hosts"] = []string{named + ".http-proxy.capi-proxy-patcher.io"}
			spec["addresses"] = []string{netip.PrefixFrom(address, address.BitLen()).String()}
			delete(spec, "resolution")
		}
		entries = append(entries, object{
			"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": object{"name": proxy.name},
			"spec": spec,
		})
	}
	return entries
}

// addonHeader begins the values of an add-on, which are a document of ytt.
const addonHeader = "#@data/values\n#@overlay/match-child-defaults missing_ok=True\n---\n"

// Addons returns the Secrets with the settings of TKG's add-ons. Each has nothing but the proxy: the one in a cluster
// holds other settings of the add-on too, and has a writer of its own.
func (v Values) Addons() ([]any, error) {
	const prefix = "tkg.tanzu.vmware.com/"
	settings := func(http, https, noProxy string) object {
		values := object{}
		for key, name := range map[string]string{http: "HTTP_PROXY", https: "HTTPS_PROXY", noProxy: "NO_PROXY"} {
			for _, variable := range v.Input.Settings.Vars(v.Input.NoProxy) {
				if variable.Name == name {
					values[key] = variable.Value
				}
			}
		}
		return values
	}
	node := settings("http_proxy", "https_proxy", "no_proxy")
	controller := object{"config": settings("httpProxy", "httpsProxy", "noProxy")}
	var secrets []any
	for _, addon := range []struct {
		name, kind, header string
		values             object
		annotations        object
	}{
		{name: "vsphere-cpi", kind: "cloud-provider/vsphere-cpi", header: addonHeader, values: object{"vsphereCPI": node}},
		{name: "vsphere-csi", kind: "csi/vsphere-csi", header: addonHeader, values: object{"vsphereCSI": node}},
		{
			name: "kapp-controller", kind: "addons-management/kapp-controller", values: object{"kappController": controller},
			annotations: object{prefix + "remote-app": "true"},
		},
	} {
		text, err := yaml.Marshal(addon.values)
		if err != nil {
			return nil, fmt.Errorf("encoding output %s: %w", TKG, err)
		}
		metadata := v.metadata(v.Cluster.Name+"-"+addon.name+"-addon", object{
			prefix + "addon-name": addon.name, prefix + "cluster-name": v.Cluster.Name,
		})
		annotations := object{prefix + "addon-type": addon.kind}
		maps.Copy(annotations, addon.annotations)
		metadata["annotations"] = annotations
		secrets = append(secrets, object{
			"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": prefix + "addon",
			"stringData": object{"values.yaml": addon.header + string(text)},
		})
	}
	return secrets, nil
}
