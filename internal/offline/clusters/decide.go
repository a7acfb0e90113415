package clusters

import (
	"cmp"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// Member is a bootstrap object of a Cluster.
type Member struct {
	// Object is its object in the manifests, Path where its bootstrap spec is.
	Object *manifest.Object
	Path   []string
	// Workers use it, in the order of their kinds and names: the first with a proxy Secret of its own decides, as in the
	// controller. None for a control plane.
	Workers []*manifest.Object
}

// Members returns the bootstrap objects of a Cluster, the control plane first, without those that its topology owns.
func (m *Manifests) Members(cluster *manifest.Object) (members []Member) {
	add := func(o *manifest.Object, workers ...*manifest.Object) {
		members = append(members, Member{Object: o, Path: SpecPath(m.BootstrapOf(o)), Workers: workers})
	}
	if o := m.KubeadmControlPlane(cluster); o != nil {
		add(o)
	}
	for _, worker := range m.Workers(cluster) {
		o := m.Bootstrap(worker)
		if o == nil || plan.IsTopologyOwned(worker.Labels()) {
			continue
		}
		if i := slices.IndexFunc(members, func(known Member) bool { return known.Object == o }); i >= 0 {
			members[i].Workers = append(members[i].Workers, worker)
		} else {
			add(o, worker)
		}
	}
	for _, member := range members {
		slices.SortStableFunc(member.Workers, func(a, b *manifest.Object) int {
			return cmp.Or(cmp.Compare(a.Kind(), b.Kind()), cmp.Compare(a.Name(), b.Name()))
		})
	}
	return members
}

// Uses reports whether a bootstrap object uses a proxy Secret by the name in its pool, "" for that of the Cluster.
func (m *Manifests) Uses(of Member, override string) bool {
	return len(of.Workers) == 0 && override == "" || slices.ContainsFunc(of.Workers, func(worker *manifest.Object) bool {
		return m.Pool(worker).Override == override
	})
}

// InSpec completes the place of a finding about the bootstrap spec.
func (o Member) InSpec(f finding.Finding) finding.Finding {
	f.Place.Path = slices.Concat(finding.Field(o.Path...).Path, f.Place.Path)
	return f
}

// Decide makes the controller's decision about a bootstrap object of a Cluster, as if the manifests were applied to a
// management cluster without Machines. values finds the settings of the Cluster or, if override is not "", of the pool
// that names it.
func (m *Manifests) Decide(cluster *manifest.Object, of Member, want plan.Want,
	values func(override, pool string) (plan.Values, error),
) (plan.Decision, error) {
	object := plan.Object{
		Kind: of.Object.Kind(), Name: "it", Labels: of.Object.Labels(), Annotations: of.Object.Annotations(),
		Spec: m.BootstrapOf(of.Object).Bootstrap().View(), Foreign: m.foreignUser(of.Object, cluster),
	}
	for _, worker := range of.Workers {
		pool := m.Pool(worker)
		pool.Name, pool.Object = manifest.PartOfName(pool.Name), manifest.PartOfName(pool.Object)
		object.Pools = append(object.Pools, pool)
	}
	return plan.Decide(object, want, facts{m, of, values})
}

// facts implements plan.Facts. The names of generated Secrets are free, and a Cluster has no Machines.
type facts struct {
	*Manifests
	Member

	values func(override, pool string) (plan.Values, error)
}

func (f facts) Values(o plan.Object) (plan.Values, error) {
	return f.values(o.Override(), o.Overrider())
}

// Infrastructure is about machine templates in the input. Others count as existing.
func (f facts) Infrastructure(plan.Object) (says plan.Infrastructure, _ error) {
	for _, worker := range f.Member.Workers {
		template := f.Pool(worker).Infrastructure
		if o := f.Lookup(f.NamespaceOf(worker), "", template.Kind, template.Name); o != nil {
			if field := patch.WindowsField(Dig(o.Value(), "spec")); field != "" {
				says.Windows = field + " of " + o.String()
			}
		}
	}
	return says, nil
}

func (facts) Taken(plan.Object, string) (string, error) { return "", nil }
func (facts) Begun() (bool, error)                      { return false, nil }

// user is a Cluster that uses a bootstrap object, by one of its workers or as its control plane.
type user struct {
	// cluster is nil if it is not in the input.
	cluster *manifest.Object
	// pool names the Cluster and the worker; for a control plane only the Cluster.
	pool plan.Pool
}

// findUsers returns the users of all bootstrap objects, those of each in an order that does not depend on the order of
// the input.
func (x Index) findUsers() map[*manifest.Object][]user {
	users := map[*manifest.Object][]user{}
	for _, cluster := range x.Find("Cluster") {
		if o := x.KubeadmControlPlane(cluster); o != nil {
			users[o] = append(users[o], user{cluster: cluster, pool: plan.Pool{Cluster: cluster.Name()}})
		}
	}
	for _, worker := range x.AllWorkers() {
		if o := x.Bootstrap(worker); o != nil {
			own, _ := x.NamedBy(worker)
			pool := x.Pool(worker)
			pool.Cluster = cmp.Or(pool.Cluster, "(no spec.clusterName)")
			users[o] = append(users[o], user{cluster: own, pool: pool})
		}
	}
	for _, all := range users {
		slices.SortFunc(all, func(a, b user) int {
			return cmp.Or(cmp.Compare(a.pool.Kind, b.pool.Kind), cmp.Compare(a.pool.Object, b.pool.Object),
				cmp.Compare(a.pool.Cluster, b.pool.Cluster))
		})
	}
	return users
}

// foreignUser returns a user of a bootstrap object other than a Cluster, or nil.
func (m *Manifests) foreignUser(o, cluster *manifest.Object) *plan.Pool {
	i := slices.IndexFunc(m.users[o], func(u user) bool { return u.cluster != cluster })
	if i < 0 {
		return nil
	}
	return &m.users[o][i].pool
}

// IsUsed reports whether a Cluster in the input uses a bootstrap object.
func (m *Manifests) IsUsed(o *manifest.Object) bool {
	return slices.ContainsFunc(m.users[o], func(u user) bool { return u.cluster != nil })
}
