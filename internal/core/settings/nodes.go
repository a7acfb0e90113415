package settings

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// maxAddresses is how many addresses a finding names.
const maxAddresses = 3

// ReachesNodes reports whether programs of one control-plane node that get the proxy variables ask other nodes:
// kube-apiserver asks kubelets (port 10250), and kubeadm, when a Machine joins, members of etcd (port 2379). They get
// the variables with target static-pods, unless these hold credentials. All others ask the endpoint, the node itself,
// whose addresses are always direct, or destinations outside.
func (r Resolution) ReachesNodes(options Options) bool {
	return slices.Contains(options.Targets, contract.TargetStaticPods) && !r.Settings.HasCredentials() &&
		!r.Settings.IsTrustOnly()
}

// ProxiedNodes warns of the addresses of Machines of a Cluster that control-plane nodes ask through the proxy. It
// counts what a Machine that joins later asks, so one Machine is enough.
func (r Resolution) ProxiedNodes(options Options, machines []clusterv1.Machine) []finding.Finding {
	if !r.ReachesNodes(options) {
		return nil
	}
	const proxy = "http://proxy.invalid"
	proxyOf := (&httpproxy.Config{HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: r.NoProxy.Value}).ProxyFunc()
	var proxied []string
	for i := range machines {
		for _, address := range kubeletAddresses(&machines[i]) {
			through, err := proxyOf(&url.URL{Scheme: "https", Host: net.JoinHostPort(address, "10250")})
			if err == nil && through != nil {
				proxied = append(proxied, fmt.Sprintf("Machine %s at %s", finding.Line(machines[i].Name, 253),
					finding.Line(address, 253)))
			}
		}
	}
	if len(proxied) == 0 {
		return nil
	}
	text := strings.Join(proxied[:min(maxAddresses, len(proxied))], ", ")
	if more := len(proxied) - maxAddresses; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return []finding.Finding{{
		Code: noproxy.CodeProxiedNode, Place: finding.Annotation(contract.AnnotationTargets),
		Message: "kube-apiserver, and kubeadm on control-plane nodes, ask through the proxy: " + text +
			", which NO_PROXY does not have",
		Advice: "add the network of the nodes to noProxy, or leave out target " + string(contract.TargetStaticPods),
	}}
}

// IsProxied reports whether containerd and kubelet reach a URL through the proxy, and its host.
func (r Resolution) IsProxied(address string) (host string, proxied bool) {
	u, err := url.Parse(address)
	if err != nil {
		return "", false
	}
	const proxy = "http://proxy.invalid"
	config := httpproxy.Config{NoProxy: r.NoProxy.Value}
	if r.Settings.HTTPProxy.IsSet() {
		config.HTTPProxy = proxy
	}
	if r.Settings.HTTPSProxy.IsSet() {
		config.HTTPSProxy = proxy
	}
	through, err := config.ProxyFunc()(u)
	return u.Host, err == nil && through != nil
}

// kubeletAddresses returns the addresses at which kube-apiserver reaches a node, by the order that kubeadm gives it,
// and etcd advertises itself: internal ones, or else external ones, or else names. Those that only the node has are
// left out.
func kubeletAddresses(machine *clusterv1.Machine) (addresses []string) {
	for _, types := range [][]string{{"InternalIP"}, {"ExternalIP"}, {"Hostname", "InternalDNS"}} {
		for _, address := range machine.Status.Addresses {
			of, value := string(address.Type), address.Address
			if !slices.Contains(types, of) || value == "" || slices.Contains(addresses, value) {
				continue
			}
			ip, err := netip.ParseAddr(value)
			if isIP := strings.HasSuffix(of, "IP"); isIP &&
				(err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast()) {
				continue
			}
			addresses = append(addresses, value)
		}
		if len(addresses) > 0 {
			return addresses
		}
	}
	return nil
}
