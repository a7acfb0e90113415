package render

import (
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/manifest"
)

// index finds the objects of the inputs.
type index struct {
	kinds map[string][]*manifest.Object   // by kind, in order
	names map[kindName][]*manifest.Object // in order
	// pools are the MachineDeployments and then the MachinePools of each Cluster, each in order.
	pools map[*manifest.Object][]*manifest.Object
}

type kindName struct{ kind, name string }

func newIndex(objects []*manifest.Object) index {
	x := index{
		kinds: map[string][]*manifest.Object{}, names: map[kindName][]*manifest.Object{}, pools: map[*manifest.Object][]*manifest.Object{},
	}
	for _, o := range objects {
		key := kindName{o.Kind(), o.Name()}
		x.kinds[key.kind] = append(x.kinds[key.kind], o)
		x.names[key] = append(x.names[key], o)
	}
	for _, pool := range x.allPools() {
		if cluster := x.lookup(pool.Namespace(), groupCluster, "Cluster", clusterName(pool)); cluster != nil {
			x.pools[cluster] = append(x.pools[cluster], pool)
		}
	}
	return x
}

// find returns the objects of a kind of a group, in order.
func (x index) find(kind, group string) []*manifest.Object { return inGroup(x.kinds[kind], group) }

// allPools returns the MachineDeployments, then the MachinePools.
func (x index) allPools() []*manifest.Object {
	return append(x.find("MachineDeployment", groupCluster), x.find("MachinePool", groupCluster)...)
}

// lookup returns the object that somebody in a namespace means by a kind and a name, or nil. The empty group is any.
func (x index) lookup(namespace, group, kind, name string) *manifest.Object {
	if name == "" {
		return nil
	}
	return nearest(namespace, inGroup(x.names[kindName{kind, name}], group))
}

// inGroup returns the objects of an API group, in order. The empty group is any.
func inGroup(objects []*manifest.Object, group string) []*manifest.Object {
	var found []*manifest.Object
	for _, o := range objects {
		if group == "" || strings.HasPrefix(o.APIVersion(), group+"/") {
			found = append(found, o)
		}
	}
	return found
}

// nearest returns the one of some objects of one name that is in a namespace, or nil. In manifests often not every object
// says its namespace, because all get the same when they are applied: without one on either side, any fits, but one that
// says the very namespace comes first.
func nearest(namespace string, objects []*manifest.Object) *manifest.Object {
	var found *manifest.Object
	for _, o := range objects {
		switch {
		case o.Namespace() == namespace:
			return o
		case found == nil && (namespace == "" || o.Namespace() == ""):
			found = o
		}
	}
	return found
}

// clusterName is the name of the Cluster that a pool belongs to.
func clusterName(pool *manifest.Object) string {
	name, _ := dig(pool.Value(), "spec")["clusterName"].(string)
	return name
}
