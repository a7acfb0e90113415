package clusters

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// Index finds the objects of the inputs.
type Index struct {
	// Objects are all of them, in order.
	Objects []*manifest.Object

	kinds map[string][]*manifest.Object // by kind, in order
	names map[kindName]*namesakes
	// forms are the objects in the form that decisions read, unresolved their fields as decode names them.
	forms      map[*manifest.Object]metav1.Object
	unresolved map[*manifest.Object][]finding.Place
	// workers are those of Workers.
	workers map[*manifest.Object][]*manifest.Object
}

type kindName struct{ kind, name string }

func newIndex(objects []*manifest.Object) Index {
	x := Index{
		Objects: objects, kinds: map[string][]*manifest.Object{}, names: map[kindName]*namesakes{},
		workers: map[*manifest.Object][]*manifest.Object{},
		forms:   map[*manifest.Object]metav1.Object{}, unresolved: map[*manifest.Object][]finding.Place{},
	}
	for _, o := range objects {
		if form, unresolved := decode(o); form != nil {
			x.forms[o], x.unresolved[o] = form, unresolved
		}
		key := kindName{o.Kind(), manifest.SameName(o.Name())}
		x.kinds[key.kind] = append(x.kinds[key.kind], o)
		if x.names[key] == nil {
			x.names[key] = &namesakes{}
		}
		x.names[key].add(o)
	}
	for _, worker := range x.AllWorkers() {
		if cluster := x.Lookup(worker.Namespace(), GroupCluster, "Cluster", x.Pool(worker).Cluster); cluster != nil {
			x.workers[cluster] = append(x.workers[cluster], worker)
		}
	}
	return x
}

// Find returns the objects of a kind of Cluster API's core group, in order.
func (x Index) Find(kind string) []*manifest.Object { return inGroup(x.kinds[kind], GroupCluster) }

// Workers returns the objects of a Cluster that define how Machines are bootstrapped: its MachineDeployments, then its
// MachinePools, MachineSets and Machines, each in order.
func (x Index) Workers(cluster *manifest.Object) []*manifest.Object { return x.workers[cluster] }

// NamedBy returns the Cluster that a worker belongs to, nil if it is in another namespace, and all Clusters with the
// name that it refers to.
func (x Index) NamedBy(worker *manifest.Object) (own *manifest.Object, all []*manifest.Object) {
	named := x.names[kindName{"Cluster", manifest.SameName(x.Pool(worker).Cluster)}]
	if named == nil {
		return nil, nil
	}
	return named.nearest(worker.Namespace(), GroupCluster), inGroup(named.objects, GroupCluster)
}

// AllWorkers returns the workers of all Clusters, except Machines and MachineSets that a controller has created.
func (x Index) AllWorkers() []*manifest.Object {
	var found []*manifest.Object
	for _, kind := range []string{
		settings.KindMachineDeployment, settings.KindMachinePool, plan.KindMachineSet, plan.KindMachine,
	} {
		for _, o := range x.Find(kind) {
			if IsPool(o) || metav1.GetControllerOf(x.forms[o]) == nil {
				found = append(found, o)
			}
		}
	}
	return found
}

// Lookup returns the object to which a kind and a name refer in a namespace, or nil. The empty group is any.
func (x Index) Lookup(namespace, group, kind, name string) *manifest.Object {
	if name == "" {
		return nil
	}
	return x.names[kindName{kind, manifest.SameName(name)}].nearest(namespace, group)
}

// secretGroup represents the group of Secrets, which is empty.
const secretGroup = "v1"

// secrets returns all Secrets, in order.
func (x Index) secrets() []*manifest.Object { return inGroup(x.kinds["Secret"], secretGroup) }

// FindSecret returns the Secret to which a name refers, or nil.
func (x Index) FindSecret(name types.NamespacedName) *manifest.Object {
	return x.Lookup(name.Namespace, secretGroup, "Secret", name.Name)
}

// inGroup returns the objects of an API group, in order. The empty group is any.
func inGroup(objects []*manifest.Object, group string) []*manifest.Object {
	var found []*manifest.Object
	for _, o := range objects {
		if group == "" || strings.HasPrefix(o.APIVersion()+"/", group+"/") {
			found = append(found, o)
		}
	}
	return found
}

// namesakes are objects of one name (manifest.SameName), in order.
type namesakes struct {
	objects    []*manifest.Object
	namespaces map[string][]*manifest.Object // by manifest.SameName
}

func (n *namesakes) add(o *manifest.Object) {
	if n.namespaces == nil {
		n.namespaces = map[string][]*manifest.Object{}
	}
	n.objects = append(n.objects, o)
	namespace := manifest.SameName(o.Namespace())
	n.namespaces[namespace] = append(n.namespaces[namespace], o)
}

// nearest returns the object of an API group in a namespace, or nil. The empty group is any. Manifests often omit the
// namespace of some objects, because all get the same when they are applied: if either side has none, any object
// matches, but one with exactly the namespace comes first.
func (n *namesakes) nearest(namespace, group string) *manifest.Object {
	if n == nil {
		return nil
	}
	candidates := [][]*manifest.Object{n.namespaces[manifest.SameName(namespace)], n.namespaces[""]}
	if namespace == "" {
		candidates[1] = n.objects
	}
	for _, objects := range candidates {
		if found := inGroup(objects, group); len(found) > 0 {
			return found[0]
		}
	}
	return nil
}

// IsPool reports whether a worker is a pool, which may name its own proxy Secret.
func IsPool(worker *manifest.Object) bool {
	return worker.Kind() == settings.KindMachineDeployment || worker.Kind() == settings.KindMachinePool
}
