package extension

import (
	"errors"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// recipeKey identifies the recipe of the control plane (the zero pool) or of a pool.
func recipeKey(pool intent.Pool) intent.Pool {
	if !pool.HasOwnSecret() {
		return intent.Pool{Override: pool.Override} // shared by all pools that have it
	}
	return pool
}

// decide returns the decision about a template of the control plane (the zero pool) or of a pool. A conflict with a
// user's file leaves the template unchanged; the controller reports it.
func (g *generator) decide(spec patch.Spec, it *Item, pool intent.Pool) (plan.Decision, error) {
	version, err := intent.OutputVersion(g.cluster.Annotations)
	if err != nil {
		return plan.Decision{}, err
	}
	key := recipeKey(pool)
	object := plan.Object{
		Kind: plan.KindControlPlane, Spec: spec, Hooked: true,
	}
	if it.IsPool() {
		object.Kind = plan.KindTemplate
		object.Pools = []plan.Pool{plan.TopologyPool(pool)}
	}
	decision, err := plan.Decide(object, plan.Want{
		Cluster: g.cluster.Name, Enabled: true, Options: g.settings.Options, Version: version,
	}, facts{recipe: g.recipes[key]})
	g.recipes[key] = decision.Recipe
	if count := g.handlers.Rendered; count != nil {
		count(decision.Outcome())
	}
	if _, conflict := errors.AsType[*patch.ConflictError](decision.Refused); err == nil && !conflict {
		err = decision.Refused
	}
	return decision, err
}

// facts implements plan.Facts for a template of a topology. None costs a request: the entries depend on no Secret, the
// controller reports names that are taken, pools for Windows have been skipped, and a template has no Machines.
type facts struct {
	recipe *patch.Recipe // that of an earlier template with the same settings, or nil
}

func (f facts) Values(plan.Object) (plan.Values, error) { return plan.Values{Recipe: f.recipe}, nil }

func (facts) Taken(plan.Object, string) (string, error)                        { return "", nil }
func (facts) Infrastructure(plan.Object) (none plan.Infrastructure, err error) { return none, nil }
func (facts) Begun() (bool, error)                                             { return false, nil }
