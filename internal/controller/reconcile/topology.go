package reconcile

import (
	"context"
	"slices"
	"time"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
)

// delay is how long the topology controller may take before the ClusterClass counts as not declaring the patch.
const delay = 10 * time.Second

// Topology is the topology of a Cluster in one pass.
type Topology struct {
	// Cluster is the Cluster, View has its settings.
	Cluster *clusterv1.Cluster
	View    intent.Cluster
	// Asks has the settings in the topology of an enabled Cluster.
	Asks intent.Settings
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
	resolutions map[string]*resolve.Resolution
}

// Resolve finds the settings of the pool that names a proxy Secret. It returns nil if the outcome has a finding about
// them.
type Resolve func(ctx context.Context, override, pool string) (*resolve.Resolution, report.Outcome, error)

// IsOwned reports whether the topology controller of the Cluster owns o.
func (t *Topology) IsOwned(o Object) bool { return t != nil && o.IsTopologyOwned() }

// pool returns the settings of a pool in the topology. A pool that is being removed is not there any more.
func (t *Topology) pool(p plan.Pool) (intent.Pool, bool) {
	i := slices.IndexFunc(t.Asks.Pools, func(s intent.Pool) bool { return s.Kind == p.Kind && s.Name == p.Name })
	if i < 0 {
		return intent.Pool{}, false
	}
	return t.Asks.Pools[i], true
}

// EnsureSecrets resolves what the templates of the topology get, and keeps the Secrets that they will refer to. They
// exist before the templates do. main are the settings of the Cluster.
func (t *Topology) EnsureSecrets(ctx context.Context, objects []Object, main *resolve.Resolution,
	find Resolve,
) (out report.Outcome, err error) {
	t.complete(objects)
	t.resolutions = map[string]*resolve.Resolution{"": main}
	for _, pool := range append([]intent.Pool{{}}, t.Asks.Pools...) {
		if !pool.UsesProxy() {
			continue
		}
		resolution, known := t.resolutions[pool.Override]
		if !known {
			var found report.Outcome
			if resolution, found, err = find(ctx, pool.Override, pool.String()); err != nil {
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
		found, err = t.Secrets.Ensure(ctx, name, *resolution)
		out.Join(found)
		if err != nil {
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
			i := slices.IndexFunc(t.Asks.Pools, func(s intent.Pool) bool { return s.Kind == p.Kind && s.Name == p.Name })
			if i >= 0 && t.Asks.Pools[i].Override == "" {
				t.Asks.Pools[i].Override = p.Override
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
	decision, err = plan.Decide(object, want, facts{t})
	return decision, true, err
}

// facts implements plan.Facts for a template of the topology: EnsureSecrets has found the settings and checked the
// names, the hook skips pools for Windows, and a template has no Machines.
type facts struct{ topology *Topology }

func (f facts) Values(o plan.Object) (plan.Values, error) {
	return plan.Values{Resolution: f.topology.resolutions[o.Override()]}, nil
}

func (f facts) Taken(_ plan.Object, secret string) (string, error) {
	return f.topology.Secrets.Taken(secret), nil
}

func (facts) Infrastructure(plan.Object) (none plan.Infrastructure, err error) { return none, nil }

func (facts) Begun() (bool, error) { return false, nil }

// isFrozen reports whether the freeze of the topology applies to an object.
func (t *Topology) isFrozen(o Object) bool {
	return !intent.IsEnabledAt(t.Cluster.Labels, t.Cluster.Annotations, o.Version())
}

// Inspect compares an object with the hook's result for its template.
func (t *Topology) Inspect(o Object, want plan.Want) (reconciled Reconciled,
	drift Drift, out report.Outcome, err error,
) {
	reconciled.Object = o
	t.Secrets.Keep(patch.References(o.Spec)...)
	decision, known, err := t.decide(o, want)
	if err != nil {
		return reconciled, drift, out, err
	}
	reconciled.Decision = decision
	patched := patch.IsPatched(o.Spec)
	override := t.override(o)
	switch {
	case !known:
	case override == contract.SecretNone:
		if patched {
			drift = Stale
		}
	case t.isFrozen(o) && patch.Unsupported(o.Spec) == "":
		t.reportFreeze(&out, o, contract.ReasonWaitingForRollout, "waits for")
	case decision.Recipe == nil:
		out.Find(decision.Report()...) // else there is a finding about the settings
	case !patched:
		drift = Lacking
	case !plan.Carries(o.Spec, *decision.Recipe):
		drift = Stale
	case len(decision.Edits) == 0:
		out.Find(decision.Report()...)
		reconciled.Recipe, reconciled.Secret = decision.Recipe, decision.Secret
	}
	if decision.Resolution != nil && !t.isFrozen(o) {
		reconciled.Proxy = decision.Resolution.Secret.Name.String()
	}
	return reconciled, drift, out, nil
}

// override is the proxy Secret that the topology gives to the pool of an object, "" for the Cluster's.
func (t *Topology) override(o Object) string {
	if len(o.Pools) == 0 {
		return ""
	}
	pool, _ := t.pool(o.Pools[0])
	return pool.Override
}

// CopiedFrom is the template of the pool that a KubeadmConfig is of.
func (t *Topology) CopiedFrom(ctx context.Context, o Object, want plan.Want) (from plan.Copied, err error) {
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
func (t *Topology) reportFreeze(out *report.Outcome, o Object, reason, waits string) {
	freeze, _ := intent.FreezeOf(t.Cluster.Annotations)
	out.Add(reason, "%s %s the next upgrade of Kubernetes from %s, %s", o, waits, freeze.Version, plan.ToRollNow)
}

// Leave keeps the Secrets to which an object of a disabled topology refers, and reports that it still has the proxy.
func (t *Topology) Leave(o Object) (out report.Outcome) {
	t.Secrets.Keep(patch.References(o.Spec)...)
	switch {
	case !patch.IsPatched(o.Spec):
	case intent.IsEnabledAt(nil, t.Cluster.Annotations, o.Version()):
		t.reportFreeze(&out, o, contract.ReasonRemovalWaiting, "keeps the proxy until")
	default:
		out.Drifting = Groups(o)
		out.Add(contract.ReasonRemovalWaiting, "%s has the proxy until the topology controller removes it", o)
	}
	return out
}

// Groups are the control plane or the pools whose Machines get their bootstrap data from an object.
func Groups(o Object) (groups []status.Group) {
	if o.Kind == plan.KindControlPlane {
		return []status.Group{{Kind: o.Kind, Name: o.GetName()}}
	}
	for _, pool := range o.Pools {
		groups = append(groups, status.Group{Kind: pool.Kind, Name: pool.Object})
	}
	return groups
}
