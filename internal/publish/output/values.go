package output

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// values are what templates see. While an output is withdrawn they are empty, but for the names.
type values struct {
	// Cluster and Namespace are those of the Cluster. Namespace is "" if it is not known.
	Cluster, Namespace string
	// Secret names the proxy Secret in messages.
	Secret string
	// Argument is the argument, and Arguments are all of a path, which may be repeated.
	Argument  string
	Arguments []string
	// HTTPProxy, HTTPSProxy and NoProxy are the values of the variables, "" for one that is not set.
	HTTPProxy, HTTPSProxy, NoProxy string
	// Variables are the variables that are set, in both spellings.
	Variables []systemd.Var
	// TrustedCA are the certificates in PEM.
	TrustedCA string
	// Proxies are the proxies, each once.
	Proxies []proxy
	// Version is the Kubernetes version that the whole control plane runs, or "" if it is not known.
	Version string
	// HasNodeNetwork reports whether nodes may be among what NoProxy covers.
	HasNodeNetwork bool
	// HasCredentials reports whether the proxy has credentials, also if the output sees none.
	HasCredentials bool

	withdrawn bool
	notes     []string
}

// proxy is where a proxy is, without credentials.
type proxy struct {
	// Name is http-proxy or https-proxy.
	Name string
	Host string
	Port int
	// Network is the address of a proxy without a name as a network, and Hyphenated the address as part of a name.
	Network, Hyphenated string
}

// values returns what the template of outputs of one name sees.
func (in Input) values(d *definition, outputs []Output) *values {
	v := &values{
		Cluster: in.Cluster, Namespace: in.Namespace, Secret: in.Secret, Argument: outputs[0].Argument,
		Proxies: proxiesOf(in.Settings), HasNodeNetwork: in.HasNodeNetwork, HasCredentials: in.Settings.HasCredentials(),
	}
	for _, o := range outputs {
		v.Arguments = append(v.Arguments, o.Argument)
	}
	for _, certificate := range in.Settings.TrustedCA {
		v.TrustedCA += string(certificate.PEM())
	}
	if _, err := version.ParseGeneric(in.Version); err == nil {
		v.Version = in.Version
	}
	for _, one := range in.Settings.Vars(in.NoProxy) {
		isList := strings.EqualFold(one.Name, "NO_PROXY")
		if !isList && v.HasCredentials && !*d.Credentials {
			continue
		}
		v.Variables = append(v.Variables, one)
		switch one.Name {
		case "HTTP_PROXY":
			v.HTTPProxy = one.Value
		case "HTTPS_PROXY":
			v.HTTPSProxy = one.Value
		case "NO_PROXY":
			v.NoProxy = one.Value
		}
	}
	return v
}

func proxiesOf(values settings.Proxy) (all []proxy) {
	for _, one := range []struct {
		name string
		url  settings.URL
	}{{"http-proxy", values.HTTPProxy}, {"https-proxy", values.HTTPSProxy}} {
		host, port := one.url.HostPort()
		p := proxy{Name: one.name, Host: host, Port: port}
		if address, err := netip.ParseAddr(host); err == nil {
			p.Network = netip.PrefixFrom(address, address.BitLen()).String()
			p.Hyphenated = strings.NewReplacer(".", "-", ":", "-").Replace(address.StringExpanded())
		}
		if host != "" && !slices.ContainsFunc(all, func(p proxy) bool { return p.Host == host && p.Port == port }) {
			all = append(all, p)
		}
	}
	return all
}

// Env returns the variables as the env of a container. The kubelet reads $(NAME) in a value as a reference, and $$ as a
// dollar sign.
func (v *values) Env() []map[string]string {
	list := []map[string]string{}
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"} {
		for _, one := range v.Variables {
			if one.Name == name {
				list = append(list, map[string]string{"name": name, "value": strings.ReplaceAll(one.Value, "$", "$$")})
			}
		}
	}
	return list
}

// Note reports what people should know of the output.
func (v *values) Note(format string, args ...any) string {
	v.notes = append(v.notes, fmt.Sprintf(format, args...))
	return ""
}

// Refuse ends the template of a delivered output: the output stays as it is, for this reason of the condition. What is
// withdrawn is not refused.
func (v *values) Refuse(reason, format string, args ...any) (string, error) {
	switch {
	case reason != ReasonKubernetesTooOld && reason != contract.ReasonTooLarge:
		return "", fmt.Errorf("%q is not a reason for refusing an output", reason)
	case v.withdrawn:
		return "", nil
	}
	return "", &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}

// refusal is an output that cannot be made.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return strconv.Quote(r.reason) + ": " + r.message }
