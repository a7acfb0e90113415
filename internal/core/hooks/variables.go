package hooks

import (
	"context"
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// DiscoverVariables answers the hook of the same name with the one variable. It is optional, and so is each of its
// fields.
//
// The schema has no defaults, its descriptions name them: Cluster API would write a default into every override too,
// where it would contradict the Cluster's value.
func (h *Handlers) DiscoverVariables(_ context.Context, _ *runtimehooksv1.DiscoverVariablesRequest,
	response *runtimehooksv1.DiscoverVariablesResponse,
) {
	targets := make([]apiextensionsv1.JSON, 0, len(contract.AllTargets()))
	for _, target := range contract.AllTargets() {
		targets = append(targets, literal(target))
	}
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	response.Variables = []clusterv1.ClusterClassVariable{{
		Name: contract.VariableName,
		// Without this value Cluster API cannot write the status of the ClusterClass.
		Required: new(false),
		Schema: clusterv1.VariableSchema{OpenAPIV3Schema: clusterv1.JSONSchemaProps{
			Type: "object",
			Description: "The proxy of the nodes, for a Cluster with label " + contract.LabelEnabled + ": \"" +
				contract.LabelEnabledValue + "\". " +
				"Every field is optional. A pool's override may set " + contract.VariableSecretName +
				" and must agree with the Cluster in all others.",
			Example: example(map[string]any{
				contract.VariableSecretName: "corp-proxy", contract.VariableTargets: contract.Targets(),
				contract.VariableNoProxy: []string{".corp.example.com", "10.20.0.0/16"},
			}),
			Properties: map[string]clusterv1.JSONSchemaProps{
				contract.VariableSecretName: {
					Type: "string", MinLength: new(int64(1)), MaxLength: new(int64(253)),
					Pattern: `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`,
					Description: "Name of the proxy Secret in the Cluster's namespace. Default: <cluster>" +
						contract.ClusterSecretSuffix +
						" if it exists, else " + contract.DefaultSecretName +
						", else the manager's --default-proxy-secret. In a pool's override, " +
						contract.SecretNone + " means that the pool uses no proxy.",
					Example: example("corp-proxy"),
				},
				contract.VariableTargets: {
					Type: "array", MinItems: new(int64(1)), MaxItems: new(int64(len(targets))),
					Description: "What on a node is configured. Default: all.",
					Items:       &clusterv1.JSONSchemaProps{Type: "string", Enum: targets},
					Example:     example([]contract.Target{contract.TargetContainerd, contract.TargetKubelet}),
				},
				contract.VariableNoProxy: {
					Type: "array", MaxItems: new(int64(settings.MaxNoProxy)),
					Description: "Additional entries of NO_PROXY, after those of the Cluster and of the proxy Secret: names, " +
						"suffixes with a leading dot, addresses or networks. Default: none.",
					Items:   &clusterv1.JSONSchemaProps{Type: "string", MinLength: new(int64(1)), MaxLength: new(int64(300))},
					Example: example([]string{".corp.example.com", "10.20.0.0/16"}),
				},
			},
		}},
	}}
}

func literal(value any) apiextensionsv1.JSON {
	text, _ := json.Marshal(value) //nolint:errchkjson // strings, and lists and maps of them
	return apiextensionsv1.JSON{Raw: text}
}

func example(value any) *apiextensionsv1.JSON {
	text := literal(value)
	return &text
}
