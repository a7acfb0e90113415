package render

import (
	"cmp"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// user is a Cluster that uses a bootstrap object, by one of its workers or as its control plane.
type user struct {
	// cluster is nil if it is not in the input.
	cluster *manifest.Object
	// pool names the Cluster and the worker; for a control plane only the Cluster.
	pool plan.Pool
}

// findUsers returns the users of all bootstrap objects, those of each in an order that does not depend on the order of
// the input.
func (r *renderer) findUsers() map[*manifest.Object][]user {
	users := map[*manifest.Object][]user{}
	for _, cluster := range r.Find("Cluster") {
		if o := r.KubeadmControlPlane(cluster); o != nil {
			users[o] = append(users[o], user{cluster: cluster, pool: plan.Pool{Cluster: cluster.Name()}})
		}
	}
	for _, worker := range r.AllWorkers() {
		if o := r.Bootstrap(worker); o != nil {
			own, _ := r.NamedBy(worker)
			pool := r.Pool(worker)
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
func (r *renderer) foreignUser(o, cluster *manifest.Object) *plan.Pool {
	i := slices.IndexFunc(r.users[o], func(u user) bool { return u.cluster != cluster })
	if i < 0 {
		return nil
	}
	return &r.users[o][i].pool
}
