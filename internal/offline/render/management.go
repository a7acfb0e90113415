package render

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// ProviderLabel is on every object of a provider of Cluster API.
const ProviderLabel = "cluster.x-k8s.io/provider"

// ProviderContainer is the container of a provider's Deployment that runs its controllers.
const ProviderContainer = "manager"

// secretName is the Secret from which containers get variables that hold credentials.
const secretName = "http-proxy-env" //nolint:gosec // a name, no credential

// ProviderComponent returns the kustomize Component that gives the providers of a management cluster the variables.
// Those with credentials refer to a Secret of each namespace; without namespaces the values are in the Deployments.
// Either replaces variables of these names that a provider has, and nothing else.
func ProviderComponent(vars []systemd.Var, namespaces []string) ([]byte, error) {
	component := object{"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
	if len(namespaces) > 0 {
		component["secretGenerator"] = generators(vars, namespaces)
	}
	env := make([]any, 0, len(vars))
	for _, v := range vars {
		// A variable with both fields is invalid, so null removes the other one. The kubelet reads $(NAME) as a reference,
		// and $$ as a dollar sign. A Secret without the key stops the container: it must not run without the proxy.
		variable := object{"name": v.Name, "value": strings.ReplaceAll(v.Value, "$", "$$"), "valueFrom": nil}
		if len(namespaces) > 0 {
			variable["value"] = nil
			variable["valueFrom"] = object{"secretKeyRef": object{"name": secretName, "key": v.Name}}
		}
		env = append(env, variable)
	}
	container := object{"name": ProviderContainer, "env": env}
	patch, err := yaml.Marshal(object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "provider"},
		"spec": object{"template": object{"spec": object{"containers": []any{container}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of providers: %w", err)
	}
	component["patches"] = []any{object{
		"target": object{"kind": "Deployment", "labelSelector": ProviderLabel}, "patch": string(patch),
	}}
	text, err := yaml.Marshal(component)
	if err != nil {
		return nil, fmt.Errorf("encoding the Component: %w", err)
	}
	return text, nil
}

// generators returns a generator of the Secret for each namespace. Its name has a hash of the values, so that a changed
// value replaces the Pods of providers.
func generators(vars []systemd.Var, namespaces []string) []any {
	literals := make([]string, 0, len(vars))
	for _, v := range vars {
		literals = append(literals, v.Name+"="+v.Value)
	}
	all := make([]any, 0, len(namespaces))
	for _, namespace := range namespaces {
		all = append(all, object{"name": secretName, "namespace": namespace, "literals": literals})
	}
	return all
}
