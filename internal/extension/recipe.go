package extension

import (
	"errors"
	"fmt"
	"reflect"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension/request"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// recipeKey is what the recipe of the control plane (the zero pool) or of a pool depends on.
func (g *generator) recipeKey(pool intent.Pool) intent.Pool {
	inline := g.settings.Options.Delivery == contract.DeliveryInline
	if inline || !pool.HasOwnSecret() {
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
	want := plan.Want{Cluster: g.cluster.Name, Enabled: true, Options: g.settings.Options, Version: version}
	object := plan.Object{
		Kind: plan.KindControlPlane, Spec: spec, Hooked: true,
		// Windows pools have been skipped. Originals stay in the templates of the ClusterClass, from which every
		// request starts.
		Facts: plan.Facts{Taken: map[string]string{}, Infrastructure: &plan.Infrastructure{}, Originals: &plan.Originals{}},
	}
	if it.IsPool() {
		object.Kind = plan.KindTemplate
		object.Pools = []plan.Pool{plan.TopologyPool(pool)}
	}
	for {
		decision := plan.Decide(object, want)
		switch decision.Ask {
		case plan.FactValues:
			object.Facts.Values, err = g.settingsOf(pool)
		case plan.FactTaken:
			object.Facts.Taken[decision.Name], err = "", g.allowed(pool, decision.Name)
		default:
			if decision.Recipe != nil && object.Facts.Values != nil {
				object.Facts.Values.Recipe = decision.Recipe
			}
			if _, conflict := errors.AsType[*patch.ConflictError](decision.Refused); !conflict {
				err = decision.Refused
			}
			g.handlers.Counters.Rendered("hook", decision.Outcome())
			return decision, err
		}
		if err != nil {
			return plan.Decision{}, err
		}
	}
}

// settingsOf are the settings of the control plane (the zero pool) or of a pool, found once for all that share them.
func (g *generator) settingsOf(pool intent.Pool) (*plan.Values, error) {
	key := g.recipeKey(pool)
	if known := g.values[key]; known != nil {
		return known, nil
	}
	found, err := g.resolve(pool)
	if err != nil {
		return nil, err
	}
	g.values[key] = found
	return found, nil
}

// resolve finds the settings of the control plane (the zero pool) or of a pool. Reference delivery needs none.
func (g *generator) resolve(pool intent.Pool) (*plan.Values, error) {
	if g.settings.Options.Delivery != contract.DeliveryInline {
		return &plan.Values{}, nil
	}
	if g.handlers.State == nil {
		return nil, fmt.Errorf(
			"delivery %s needs the hooks of the manager, which reads Secrets and the infrastructure; use delivery %s, or "+
				"point the ExtensionConfig to the manager",
			contract.DeliveryInline, contract.DeliveryReference)
	}
	if err := g.allowed(pool, ""); err != nil {
		return nil, err
	}
	values, err := g.handlers.State.Values(g.ctx, g.stored, pool.Override)
	if err != nil {
		return nil, err
	}
	return &plan.Values{Resolution: &resolve.Resolution{
		Settings: values.Settings, NoProxy: noproxy.Result{Value: values.NoProxy}, Complete: values.Complete,
	}}, nil
}

// allowed returns why the control plane (the zero pool) or a pool may not have what the request asks for, or nil. The
// Cluster must be stored, carry the label and ask for the same, because the answer contains values of its Secrets and
// reveals whether a Secret exists.
func (g *generator) allowed(pool intent.Pool, secret string) error {
	if g.handlers.State == nil {
		return nil // hooks that read no Secret reveal nothing about one
	}
	if g.stored == nil {
		stored, err := g.handlers.State.Stored(g.ctx, g.cluster.Namespace, g.cluster.Name)
		if err != nil {
			return err
		}
		if stored == nil || !mayBeEnabled(stored.cluster()) {
			return fmt.Errorf("the manager does not know a Cluster %s/%s with label %s yet; Cluster API retries",
				g.cluster.Namespace, g.cluster.Name, contract.LabelEnabled)
		}
		g.stored, g.pools = stored, map[intent.Pool]bool{{}: true}
		for _, pool := range stored.Settings.Pools {
			g.pools[pool] = true
		}
	}
	inline := g.settings.Options.Delivery == contract.DeliveryInline
	asks := g.stored.Settings
	if !g.pools[pool] || inline &&
		(asks.SecretName != g.settings.SecretName || !reflect.DeepEqual(asks.Options, g.settings.Options)) {
		return fmt.Errorf("the request differs from the stored Cluster %s/%s; Cluster API retries",
			g.cluster.Namespace, g.cluster.Name)
	}
	if inline {
		return nil
	}
	return g.handlers.State.Taken(g.ctx, g.stored, secret)
}

// holdBack pauses a control plane, or the KubeadmConfigs of a pool, while Inline delivery cannot write the complete
// NO_PROXY: annotations of spec.template.metadata become those of the control plane, and of the KubeadmConfigs that are
// created from a KubeadmConfigTemplate.
func holdBack(t *request.Template) ([]patch.Operation, error) {
	if t.At.Missing > len(t.At.Parents)-2 {
		return nil, fmt.Errorf(
			"delivery %s cannot pause objects that are created from a template without spec.template; use delivery %s",
			contract.DeliveryInline, contract.DeliveryReference)
	}
	at := "/spec/template/metadata"
	var value any = contract.PausedForEndpoint
	metadata, _ := jsonread.New(t.Metadata).Value().(map[string]any)
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
