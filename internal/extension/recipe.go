package extension

import (
	"errors"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension/request"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// recipeKey is what the recipe of the control plane (the zero pool) or of a pool depends on.
func recipeKey(pool intent.Pool) intent.Pool {
	if !pool.HasOwnSecret() {
		return intent.Pool{Override: pool.Override} // shared by all pools that have it
	}
	return pool
}

// decide returns what happens to a template of the control plane (the zero pool) or of a pool. A conflict with a user's
// file leaves the template unchanged; the controller reports it.
func (g *generator) decide(spec patch.Spec, it *request.Item, pool intent.Pool) (plan.Decision, error) {
	version, err := intent.OutputVersion(g.cluster.Annotations)
	if err != nil {
		return plan.Decision{}, err
	}
	key := recipeKey(pool)
	object := plan.Object{
		Kind: plan.KindControlPlane, Spec: spec, Hooked: true,
		// Hooks refer to generated Secrets without reading any. Windows pools have been skipped.
		Facts: plan.Facts{
			Values: &plan.Values{Recipe: g.recipes[key]}, Taken: map[string]string{pool.GeneratedSecret(g.cluster.Name): ""},
			Infrastructure: &plan.Infrastructure{},
		},
	}
	if it.IsPool() {
		object.Kind = plan.KindTemplate
		object.Pools = []plan.Pool{plan.TopologyPool(pool)}
	}
	decision := plan.Decide(object, plan.Want{
		Cluster: g.cluster.Name, Enabled: true, Options: g.settings.Options, Version: version,
	})
	g.recipes[key] = decision.Recipe
	g.handlers.Counters.Rendered("hook", decision.Outcome())
	if _, conflict := errors.AsType[*patch.ConflictError](decision.Refused); !conflict {
		err = decision.Refused
	}
	return decision, err
}
