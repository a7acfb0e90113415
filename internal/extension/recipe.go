package extension

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/topology"
)

// recipe returns what templates of the control plane (the zero pool) or of a pool get, the same pointer for the same content.
func (g *generator) recipe(pool topology.Pool) (*preparedRecipe, error) {
	inline := g.settings.Options.Delivery == contract.DeliveryInline
	key := pool
	if inline || !pool.Source().HasOwnSecret() {
		key = topology.Pool{Override: pool.Override} // shared by all pools that have it
	}
	if prepared, found := g.recipes[key]; found {
		return prepared, nil
	}
	secret := pool.Source().GeneratedSecret(g.cluster.name)
	if g.state != nil && pool.Source().UsesProxy() {
		if err := g.allowed(pool, secret); err != nil {
			return nil, err
		}
	}
	prepared := &preparedRecipe{}
	switch {
	case !pool.Source().UsesProxy():
	case g.base != nil && !inline:
		prepared.recipe = withSecret(g.base, secret)
	default:
		options, waiting, err := g.options(secret, pool.Override)
		if err != nil {
			return nil, err
		}
		if prepared.waiting = waiting; !waiting {
			recipe, err := patch.NewRecipe(options)
			if err != nil {
				return nil, err
			}
			prepared.recipe = &recipe
		}
	}
	if g.base == nil {
		g.base = prepared.recipe
	}
	if g.recipes == nil {
		g.recipes = map[topology.Pool]*preparedRecipe{}
	}
	g.recipes[key] = prepared
	return prepared, nil
}

// withSecret returns a recipe of Reference delivery with another generated Secret, which is all that recipes of one Cluster
// differ in.
func withSecret(recipe *patch.Recipe, secret string) *patch.Recipe {
	other := *recipe
	other.Files = slices.Clone(recipe.Files)
	for i := range other.Files {
		if other.Files[i].ContentFrom.Name != "" {
			other.Files[i].ContentFrom.Name = secret
		}
	}
	return &other
}

// options returns the options of a recipe, and whether it has to wait for the control-plane endpoint.
func (g *generator) options(secret, override string) (patch.Options, bool, error) {
	version, err := topology.OutputVersion(g.cluster.annotations)
	if err != nil {
		return patch.Options{}, false, err
	}
	options := patch.Options{Version: version, Delivery: g.settings.Options.Delivery, Targets: g.settings.Options.Targets, SecretName: secret}
	if options.Delivery != contract.DeliveryInline {
		return options, false, nil
	}
	if g.state == nil {
		return options, false, fmt.Errorf("delivery %s needs the hooks of the manager, which sees Secrets; use delivery %s, or let the ExtensionConfig call the manager",
			contract.DeliveryInline, contract.DeliveryReference)
	}
	values, err := g.state.Values(g.ctx, g.stored, override)
	if err != nil {
		return options, false, err
	}
	options.Settings, options.NoProxy = values.Settings, values.NoProxy
	return options, !values.Complete, nil
}

// allowed returns why the control plane (the zero pool) or a pool may not have what the request asks for, or nil. The
// Cluster must be stored, carry the label and ask for the same, because values of its Secrets go into the answer, and the
// answer tells whether a Secret exists.
func (g *generator) allowed(pool topology.Pool, secret string) error {
	if g.stored == nil {
		stored, err := g.state.Stored(g.ctx, g.cluster.namespace, g.cluster.name)
		if err != nil {
			return err
		}
		if stored == nil || !mayBeEnabled(stored.cluster()) {
			return fmt.Errorf("no Cluster %s/%s with label %s is known to the manager; Cluster API asks again",
				g.cluster.namespace, g.cluster.name, contract.LabelEnabled)
		}
		g.stored, g.pools = stored, map[topology.Pool]bool{{}: true}
		for _, pool := range stored.Settings.Pools {
			g.pools[pool] = true
		}
	}
	inline := g.settings.Options.Delivery == contract.DeliveryInline
	asks := g.stored.Settings
	if !g.pools[pool] || inline && (asks.SecretName != g.settings.SecretName || !reflect.DeepEqual(asks.Options, g.settings.Options)) {
		return fmt.Errorf("the request asks for something else than Cluster %s/%s; Cluster API asks again", g.cluster.namespace, g.cluster.name)
	}
	if inline {
		return nil
	}
	return g.state.Taken(g.ctx, g.stored, secret)
}

// holdBack keeps a control plane from making Machines, and those of a pool from getting bootstrap data, while Inline delivery
// cannot write the whole NO_PROXY: annotations of spec.template.metadata become those of the control plane, and of the
// KubeadmConfigs that are made from a KubeadmConfigTemplate.
func holdBack(t *template) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	const metadata = "/spec/template/metadata"
	annotation := map[string]string{clusterv1.PausedAnnotation: contract.PausedForEndpoint}
	var operations []operation
	switch {
	case t.at.Missing > len(t.at.Parents)-2:
		return nil, fmt.Errorf("delivery %s cannot hold back what is made from a template that has no spec.template; use delivery %s",
			contract.DeliveryInline, contract.DeliveryReference)
	case !t.metadata:
		operations = append(operations, operation{"add", metadata, map[string]any{"annotations": annotation}})
	case t.annotations == nil:
		operations = append(operations, operation{"add", metadata + "/annotations", annotation})
	default:
		var current map[string]any
		if err := json.Unmarshal(t.annotations, &current); err != nil {
			return nil, fmt.Errorf("reading annotations of the control plane's template: %w", err)
		}
		if _, paused := current[clusterv1.PausedAnnotation]; paused {
			return nil, nil
		}
		operations = append(operations, operation{"add", metadata + "/annotations/cluster.x-k8s.io~1paused", contract.PausedForEndpoint})
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("writing a patch: %w", err)
	}
	return text, nil
}
