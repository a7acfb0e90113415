package hooks

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

func TestValidateTopology(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options hookrequests.Options
		want    string // beginning of the message
	}{
		"nothing said":          {hookrequests.Options{Pools: 1}, ""},
		"an unlabelled Cluster": {hookrequests.Options{Unlabelled: true, Variable: `{"targets":"x"}`}, ""},
		"an unknown Secret":     {hookrequests.Options{Variable: `{"secretName":"gone"}`}, ""},
		"overrides that contradict, all at once": {
			hookrequests.Options{
				Pools: 1, MachinePools: 1,
				Overrides: map[int]string{0: `{"targets":["trust"]}`, 1: `{"noProxy":["x"]}`},
			},
			"spec.topology.workers.machineDeployments[pool-000].variables.overrides[capiProxyPatcher].targets: differs from the Cluster's value; a Cluster has one; remove the field from the override; " +
				"spec.topology.workers.machinePools[pool-001].variables.overrides[capiProxyPatcher].noProxy: differs from the Cluster's value; a Cluster has one; remove the field from the override",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := validate(t, &Handlers{}, generated(t, test.options))
			failed := response.Status == runtimehooksv1.ResponseStatusFailure
			if failed != (test.want != "") || !strings.HasPrefix(response.Message, test.want) || !failed &&
				response.Status != runtimehooksv1.ResponseStatusSuccess {
				t.Errorf("%s %q, want %q", response.Status, response.Message, test.want)
			}
		})
	}
}

func TestDiscoverVariables(t *testing.T) {
	t.Parallel()
	response := &runtimehooksv1.DiscoverVariablesResponse{}
	(&Handlers{}).DiscoverVariables(t.Context(), nil, response)
	if response.Status != runtimehooksv1.ResponseStatusSuccess || len(response.Variables) != 1 {
		t.Fatalf("%s with %d variables", response.Status, len(response.Variables))
	}
	variable := response.Variables[0]
	if variable.Name != contract.VariableName || variable.Required == nil || *variable.Required {
		t.Errorf("variable %s, required %v; the ClusterClass needs an explicit false", variable.Name, variable.Required)
	}
	schema := variable.Schema.OpenAPIV3Schema
	if v, err := settings.ParseVariable(schema.Example.Raw); err != nil || v.SecretName == "" || v.Targets == nil ||
		v.NoProxy == nil {
		t.Errorf("the example %s: %+v %v", schema.Example.Raw, v, err)
	}
	var names []string
	for name, property := range schema.Properties {
		names = append(names, name)
		if property.Description == "" || property.Example == nil || !strings.Contains(property.Description, "Default") ||
			property.Default != nil {
			t.Errorf("%s: %+v", name, property)
		}
		text := encoded(t, map[string]json.RawMessage{name: property.Example.Raw})
		if _, err := settings.ParseVariable(text); err != nil {
			t.Errorf("the example of %s: %v", name, err)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{
		contract.VariableNoProxy, contract.VariableSecretName,
		contract.VariableTargets,
	}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	pattern := regexp.MustCompile(schema.Properties[contract.VariableSecretName].Pattern)
	for _, name := range []string{"a", "a-b", "a.b-c.d1", "", "-a", "a-", "A", "a..b", ".a", "a_b", "a\n", "none", "ä"} {
		if want := len(validation.IsDNS1123Subdomain(name)) == 0; pattern.MatchString(name) != want {
			t.Errorf("the pattern and Kubernetes disagree about %q", name)
		}
	}
}
