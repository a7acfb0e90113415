package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// delay is how long the topology controller may take before the ClusterClass counts as not declaring the patch.
const delay = 10 * time.Second

// Topology is the topology of a Cluster in one pass.
type Topology struct {
	// Cluster is the Cluster, View has its settings.
	Cluster *clusterv1.Cluster
	View    settings.Cluster
	// Settings has the settings in the topology of an enabled Cluster.
	Settings settings.ClusterSettings
	// Version is the output version of the templates.
	Version int
	// Reader reads from the cache, Writer writes annotations.
	Reader Reader
	Writer *Writer
	// Secrets are the generated Secrets of the Cluster.
	Secrets *Secrets
	// Now is the clock.
	Now func() time.Time

	// resolutions are what the Cluster, under "", and pools that name another Secret get. Settings that cannot be used
	// are nil.
	resolutions map[string]*settings.Resolution
	// secrets are the names of generated Secrets that templates refer to, with what is in them.
	secrets map[string]*settings.Resolution
}

// pool returns the settings of a pool in the topology. A pool that is being removed is not there any more.
func (t *Topology) pool(p plan.Pool) (settings.Pool, bool) {
	i := slices.IndexFunc(t.Settings.Pools, func(s settings.Pool) bool { return s.Kind == p.Kind && s.Name == p.Name })
	if i < 0 {
		return settings.Pool{}, false
	}
	return t.Settings.Pools[i], true
}

// decideSecrets finds what the templates of the topology get, and which Secrets they will refer to. main are the
// settings of the Cluster, and resolveOf finds those of a pool that names another Secret.
func (t *Topology) decideSecrets(ctx context.Context, objects []Object, main *settings.Resolution,
	resolveOf func(override, pool string) (*settings.Resolution, Outcome, error),
) (out Outcome, err error) {
	t.complete(objects)
	t.resolutions, t.secrets = map[string]*settings.Resolution{"": main}, map[string]*settings.Resolution{}
	for _, pool := range append([]settings.Pool{{}}, t.Settings.Pools...) {
		if !pool.UsesProxy() {
			continue
		}
		resolution, known := t.resolutions[pool.Override]
		if !known {
			var found Outcome
			if resolution, found, err = resolveOf(pool.Override, pool.String()); err != nil {
				return out, err
			}
			out.Join(found)
			t.resolutions[pool.Override] = resolution
		}
		name := pool.GeneratedSecret(t.View.Name)
		why, found, err := t.Secrets.WhyTaken(ctx, name)
		if err != nil {
			return out, err
		}
		out.Join(found)
		if resolution == nil || why != "" {
			t.Secrets.Keep(name) // as it is
			continue
		}
		t.secrets[name] = resolution
	}
	return out, nil
}

// ensureSecrets writes the Secrets that templates refer to. They exist before the templates do.
func (t *Topology) ensureSecrets(ctx context.Context) (out Outcome, err error) {
	for _, name := range slices.Sorted(maps.Keys(t.secrets)) {
		found, err := t.Secrets.Ensure(ctx, name, *t.secrets[name])
		if out.Join(found); err != nil {
			return out, err
		}
	}
	return out, nil
}

// complete adds the annotations that pools have from the ClusterClass, which are not in the Cluster. The hook
// gets them in its request, and the topology controller writes them to the objects of the pools.
func (t *Topology) complete(objects []Object) {
	for _, o := range objects {
		for _, p := range o.Pools {
			i := slices.IndexFunc(t.Settings.Pools, func(s settings.Pool) bool { return s.Kind == p.Kind && s.Name == p.Name })
			if i >= 0 && t.Settings.Pools[i].Override == "" {
				t.Settings.Pools[i].Override = p.Override
			}
		}
	}
}

// decide returns the hook's decision about the template of an object. known is false for an object whose pool is being
// removed.
func (t *Topology) decide(o Object, want plan.Want) (decision plan.Decision, known bool, err error) {
	object := plan.Object{Kind: o.Kind, Name: o.String(), Spec: o.Spec, Hooked: true}
	if len(o.Pools) > 0 {
		pool, known := t.pool(o.Pools[0])
		if !known {
			return plan.Decision{}, false, nil
		}
		object.Pools = []plan.Pool{plan.TopologyPool(pool)}
	}
	want.Version = t.Version
	decision, err = plan.Decide(object, want, templateFacts{t})
	return decision, true, err
}

// templateFacts implements plan.Facts for a template of the topology: decideSecrets has found the settings and checked
// the names, the hook skips pools for Windows, and a template has no Machines.
type templateFacts struct{ topology *Topology }

func (f templateFacts) Values(o plan.Object) (plan.Values, error) {
	return plan.Values{Resolution: f.topology.resolutions[o.Override()]}, nil
}

func (f templateFacts) Taken(_ plan.Object, secret string) (string, error) {
	return f.topology.Secrets.Taken(secret), nil
}

func (templateFacts) Infrastructure(plan.Object) (none plan.Infrastructure, err error) {
	return none, nil
}

func (templateFacts) Begun() (bool, error) { return false, nil }

// isFrozen reports whether the freeze of the topology applies to an object.
func (t *Topology) isFrozen(o Object) bool {
	return !settings.IsEnabledAt(t.Cluster.Labels, t.Cluster.Annotations, o.Version())
}

// inspect compares an object with the hook's result for its template.
func (t *Topology) inspect(o Object, want plan.Want) (one Reconciled, out Outcome, err error) {
	one.Object = o
	t.Secrets.Keep(patch.References(o.Spec)...)
	decision, known, err := t.decide(o, want)
	if err != nil {
		return one, out, err
	}
	one.Decision = decision
	patched := patch.IsPatched(o.Spec)
	override := t.override(o)
	switch {
	case !known:
	case override == contract.SecretNone:
		if patched {
			one.Drift = Stale
		}
	case t.isFrozen(o) && patch.Unsupported(o.Spec) == "":
		t.reportFreeze(&out, o, contract.ReasonWaitingForRollout, "waits for")
	case decision.Recipe == nil:
		out.AddAll(decision.Report()...) // else there is a finding about the settings
	case !patched:
		one.Drift = Lacking
	case !plan.Carries(o.Spec, *decision.Recipe):
		one.Drift = Stale
	case len(decision.Edits) == 0:
		out.AddAll(decision.Report()...)
		one.Recipe, one.Secret = decision.Recipe, decision.Secret
	}
	if decision.Resolution != nil && !t.isFrozen(o) {
		one.Proxy = decision.Resolution.Secret.Name.String()
	}
	one.outcome = one.Drift.outcome(one)
	return one, out, nil
}

// override is the proxy Secret that the topology gives to the pool of an object, "" for the Cluster's.
func (t *Topology) override(o Object) string {
	if len(o.Pools) == 0 {
		return ""
	}
	pool, _ := t.pool(o.Pools[0])
	return pool.Override
}

// copiedFrom is the template of the pool that a KubeadmConfig is of.
func (t *Topology) copiedFrom(ctx context.Context, o Object, want plan.Want) (from plan.Copied, err error) {
	if len(o.Pools) == 0 {
		return from, nil
	}
	template := &bootstrapv1.KubeadmConfigTemplate{}
	exists, err := t.Reader.Get(ctx, t.View.Namespace, o.Pools[0].Bootstrap.Name, template)
	if err != nil || !exists {
		return from, err
	}
	from.Patched = patch.IsPatched(kinds.View(template))
	if t.View.Enabled && !t.isFrozen(o) {
		// Findings about its template report the problem.
		decision, known, err := t.decide(o, want)
		if err != nil {
			return from, err
		}
		if known && t.override(o) != contract.SecretNone {
			from.Recipe = decision.Recipe
		}
	}
	return from, nil
}

// reportFreeze reports why a frozen object waits.
func (t *Topology) reportFreeze(out *Outcome, o Object, reason, waits string) {
	freeze, _ := settings.FreezeOf(t.Cluster.Annotations)
	out.Add(reason, "%s %s the next upgrade of Kubernetes from %s, %s", o, waits, freeze.Version, plan.ToRollNow)
}

// leave keeps the Secrets to which an object of a disabled topology refers, and reports that it still has the proxy.
func (t *Topology) leave(o Object) (drift Drift, out Outcome) {
	t.Secrets.Keep(patch.References(o.Spec)...)
	switch {
	case !patch.IsPatched(o.Spec):
	case settings.IsEnabledAt(nil, t.Cluster.Annotations, o.Version()):
		t.reportFreeze(&out, o, contract.ReasonRemovalWaiting, "keeps the proxy until")
	default:
		drift = Stale
		out.Add(contract.ReasonRemovalWaiting, "%s has the proxy until the topology controller removes it", o)
	}
	return drift, out
}
