package publish

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/pods"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// object is a value in YAML.
type object = map[string]any

// encode encodes a value as YAML.
func encode(document object) ([]byte, error) {
	text, err := yaml.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding an output: %w", err)
	}
	return text, nil
}

// vars returns the variables in both spellings.
func (in Input) vars() []envfile.Var { return in.Settings.Vars(in.NoProxy) }

// value returns the value of a variable, or "".
func (in Input) value(name string) string {
	vars := in.vars()
	if i := slices.IndexFunc(vars, func(v envfile.Var) bool { return v.Name == name }); i >= 0 {
		return vars[i].Value
	}
	return ""
}

// list returns the variables as the env of a container. The kubelet reads $(NAME) in a value as a reference, and $$ as
// a dollar sign.
func (in Input) list() []any {
	list := []any{}
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"} {
		if value := in.value(name); value != "" {
			list = append(list, object{"name": name, "value": strings.ReplaceAll(value, "$", "$$")})
		}
	}
	return list
}

// valuesAt returns values for Helm with the variables at the paths of outputs.
func (in Input) valuesAt(outputs []Output) object {
	values, list := object{}, in.list()
	for _, o := range outputs {
		keys, at := strings.Split(o.Argument, "."), values
		for _, key := range keys[:len(keys)-1] {
			inner, found := at[key].(object)
			if !found {
				inner = object{}
				at[key] = inner
			}
			at = inner
		}
		at[keys[len(keys)-1]] = list
	}
	return values
}

// giantSwarmValues returns the values that charts of Giant Swarm read, in the shapes of four generations.
func (in Input) giantSwarmValues() object {
	http, https, noProxy := in.value("HTTP_PROXY"), in.value("HTTPS_PROXY"), in.value("NO_PROXY")
	return object{
		"cluster":    object{"proxy": object{"http": http, "https": https, "noProxy": noProxy}},
		"http_proxy": http, "https_proxy": https, "no_proxy": noProxy,
		"env": in.list(),
		"global": object{"connectivity": object{"proxy": object{
			"enabled": len(in.vars()) > 0, "httpProxy": http, "httpsProxy": https, "noProxy": noProxy,
		}}},
	}
}

// dropIn returns the drop-in of a service, which is a comment without a proxy URL.
func (in Input) dropIn() ([]byte, error) {
	if len(in.vars()) == 0 {
		return []byte(envfile.Header + "\n"), nil
	}
	return systemd.EnvironmentDropIn(in.vars())
}

// manifest returns the objects of an output for the workload cluster. The zero Input makes those without effect.
func (in Input) manifest(o Output) ([]byte, error) {
	var bundle strings.Builder
	for _, certificate := range in.Settings.TrustedCA {
		bundle.Write(certificate.PEM())
	}
	switch o.Name {
	case Pods:
		return pods.Manifest(pods.Engine(o.Argument), in.vars())
	case Trust:
		return encode(trust(o, bundle.String()))
	default:
		return encode(kapp(o, in.value("HTTP_PROXY"), in.value("HTTPS_PROXY"), in.value("NO_PROXY"), bundle.String()))
	}
}

// trust is the ConfigMap with the certificates.
func trust(o Output, bundle string) object {
	return object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": object{"name": "http-proxy-ca", "namespace": o.Argument},
		"data":     object{"ca.crt": bundle},
	}
}

// kapp is the Secret with the settings of kapp-controller.
func kapp(o Output, http, https, noProxy, bundle string) object {
	encoded := func(value string) string { return base64.StdEncoding.EncodeToString([]byte(value)) }
	return object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": object{"name": "kapp-controller-config", "namespace": o.Argument},
		"data": object{
			"httpProxy": encoded(http), "httpsProxy": encoded(https), "noProxy": encoded(noProxy), "caCerts": encoded(bundle),
		},
	}
}
