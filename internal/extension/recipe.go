package extension

import (
	"fmt"
	"reflect"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/topology"
)

// recipeKey is what the recipe of the control plane (the zero pool) or of a pool depends on.
func (g *generator) recipeKey(pool topology.Pool) topology.Pool {
	inline := g.settings.Options.Delivery == contract.DeliveryInline
	if inline || !pool.Source().HasOwnSecret() {
		return topology.Pool{Override: pool.Override} // shared by all pools that have it
	}
	return pool
}

// recipe returns what templates of the control plane (the zero pool) or of a pool get.
func (g *generator) recipe(pool topology.Pool) (*preparedRecipe, error) {
	key := g.recipeKey(pool)
	if prepared, found := g.recipes[key]; found {
		return prepared, nil
	}
	prepared := &preparedRecipe{}
	if pool.Source().UsesProxy() {
		secret := pool.Source().GeneratedSecret(g.cluster.name)
		if g.handlers.State != nil {
			if err := g.allowed(pool, secret); err != nil {
				return nil, err
			}
		}
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
	g.recipes[key] = prepared
	return prepared, nil
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
	if g.handlers.State == nil {
		return options, false, fmt.Errorf("delivery %s needs the hooks of the manager, which sees Secrets; use delivery %s, or let the ExtensionConfig call the manager",
			contract.DeliveryInline, contract.DeliveryReference)
	}
	values, err := g.handlers.State.Values(g.ctx, g.stored, override)
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
		stored, err := g.handlers.State.Stored(g.ctx, g.cluster.namespace, g.cluster.name)
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
	return g.handlers.State.Taken(g.ctx, g.stored, secret)
}

// holdBack keeps a control plane from making Machines, and those of a pool from getting bootstrap data, while Inline delivery
// cannot write the whole NO_PROXY: annotations of spec.template.metadata become those of the control plane, and of the
// KubeadmConfigs that are made from a KubeadmConfigTemplate.
func holdBack(t *template) ([]patch.Operation, error) {
	if t.at.Missing > len(t.at.Parents)-2 {
		return nil, fmt.Errorf("delivery %s cannot hold back what is made from a template that has no spec.template; use delivery %s",
			contract.DeliveryInline, contract.DeliveryReference)
	}
	at := "/spec/template/metadata"
	var value any = contract.PausedForEndpoint
	metadata, _ := jsonread.New(t.metadata).Value().(map[string]any)
	annotations, annotated := metadata["annotations"].(map[string]any)
	switch _, paused := annotations[clusterv1.PausedAnnotation]; {
	case paused:
		return nil, nil
	case annotated:
		at += "/annotations/cluster.x-k8s.io~1paused"
	case metadata != nil:
		at, value = at+"/annotations", map[string]any{clusterv1.PausedAnnotation: value}
	default:
		value = map[string]any{"annotations": map[string]any{clusterv1.PausedAnnotation: value}}
	}
	return []patch.Operation{{Op: "add", Path: at, Value: value}}, nil
}
