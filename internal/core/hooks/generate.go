package hooks

import (
	"context"
	"errors"
	"slices"
	"strings"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// GeneratePatches answers with a JSON patch for each template that has to change. What it answers as a failure is for
// the user, and the same for the same request.
func (h *Handlers) GeneratePatches(_ context.Context, q *runtimehooksv1.GeneratePatchesRequest,
	response *runtimehooksv1.GeneratePatchesResponse,
) {
	templates := make([]template, 0, len(q.Items))
	for _, item := range q.Items {
		templates = append(templates, template{
			uid: item.UID, object: item.Object.Raw, holder: item.HolderReference, variables: variablesOf(item.Variables),
		})
	}
	items, err := h.generate(variablesOf(q.Variables), templates)
	if err != nil {
		response.SetStatus(runtimehooksv1.ResponseStatusFailure)
		response.SetMessage(err.Error())
		return
	}
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	response.Items = items
}

// generator makes the patches of one request.
type generator struct {
	topology

	rendered func(outcome string)
	recipes  map[settings.Pool]*patch.Recipe // by recipeKey
}

// generate makes the patches for a request.
func (h *Handlers) generate(common variables, templates []template,
) (items []runtimehooksv1.GeneratePatchesResponseItem, err error) {
	t, enabled, err := read(common, templates)
	if err != nil || !enabled {
		return nil, err
	}
	windows, err := windowsPools(templates)
	if err != nil {
		return nil, err
	}
	g := &generator{topology: t, rendered: h.Rendered, recipes: map[settings.Pool]*patch.Recipe{}}
	var problems []string
	pools := t.settings.Pools
	for i := range templates {
		it := &templates[i]
		var pool settings.Pool // the zero pool is the control plane
		switch {
		case it.isControlPlane():
		case it.isPool():
			pool, pools = pools[0], pools[1:]
		default:
			continue
		}
		if windows[it.key()] || !settings.IsEnabledAt(t.labels, t.annotations, it.version) {
			continue
		}
		text, err := g.patch(it, pool)
		if err != nil {
			problems = append(problems, err.Error())
		}
		if text != nil {
			items = append(items, runtimehooksv1.GeneratePatchesResponseItem{
				UID: it.uid, PatchType: runtimehooksv1.JSONPatchType, Patch: text,
			})
		}
	}
	if len(problems) > 0 {
		slices.Sort(problems) // the order of pools in a request changes
		return nil, errors.New(strings.Join(slices.Compact(problems), "; "))
	}
	return items, nil
}

// windowsPools returns the pools whose machine template asks for Windows.
func windowsPools(templates []template) (map[poolKey]bool, error) {
	found := map[poolKey]bool{}
	for i := range templates {
		it := &templates[i]
		windows, err := it.isForWindows()
		if err != nil {
			return nil, err
		}
		if windows {
			found[it.key()] = true
		}
	}
	return found, nil
}

// patch returns the patch of a template of the control plane (the zero pool) or of a pool in JSON, nil if there is
// nothing to change.
func (g *generator) patch(it *template, pool settings.Pool) ([]byte, error) {
	t := it.decode()
	if t == nil {
		return nil, nil
	}
	spec := kinds.View(t)
	decision, err := g.decide(spec, it, pool)
	if err != nil {
		return nil, err
	}
	at := kinds.Locate(t, it.object)
	at.Alone = 0 // a hook leaves no spec empty
	operations := patch.Operations(at, spec, decision.Edits)
	if len(operations) == 0 {
		return nil, nil
	}
	return patch.EncodePatch(operations)
}

// recipeKey identifies the recipe of the control plane (the zero pool) or of a pool.
func recipeKey(pool settings.Pool) settings.Pool {
	if !pool.HasOwnSecret() {
		return settings.Pool{Override: pool.Override} // shared by all pools that have it
	}
	return pool
}

// decide returns the decision about a template. A conflict with a user's file leaves the template unchanged; the
// controller reports it.
func (g *generator) decide(spec patch.Spec, it *template, pool settings.Pool) (plan.Decision, error) {
	version, err := settings.OutputVersion(g.annotations)
	if err != nil {
		return plan.Decision{}, err
	}
	key := recipeKey(pool)
	object := plan.Object{
		Kind: plan.KindControlPlane, Spec: spec, Hooked: true,
	}
	if it.isPool() {
		object.Kind = plan.KindTemplate
		object.Pools = []plan.Pool{plan.TopologyPool(pool)}
	}
	decision, err := plan.Decide(object, plan.Want{
		Cluster: g.name, Enabled: true, Options: g.settings.Options, Version: version,
	}, facts{recipe: g.recipes[key]})
	g.recipes[key] = decision.Recipe
	if g.rendered != nil {
		g.rendered(decision.Outcome())
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
