package controller

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Object is an object with a bootstrap spec that belongs to a Cluster.
type Object struct {
	kinds.BootstrapObject

	// Kind is plan.KindControlPlane, plan.KindTemplate or plan.KindConfig.
	Kind string
	Spec patch.Spec
	// Pools use the object; none for a control plane.
	Pools []plan.Pool
	// Running reports that a change of the object replaces Machines of a control plane, or comes too late for
	// the bootstrap data of a MachinePool.
	Running bool
	// Busy reports that Cluster API works on a control plane, and may be creating its first Machine from an earlier
	// version.
	Busy bool
	// Rollout is when the user's rollout.after replaces all Machines of a control plane, or the zero time.
	Rollout time.Time
}

func (o Object) String() string { return o.Kind + " " + klog.KObj(o).String() }

// IsOfMachine reports whether o is the KubeadmConfig of a Machine, which Cluster API has created and deletes with it.
func (o Object) IsOfMachine() bool { return isOfMachine(o) }

// IsTopologyOwned reports whether the topology controller owns o.
func (o Object) IsTopologyOwned() bool { return plan.IsTopologyOwned(o.GetLabels()) }

// RollsNow reports whether Rollout is reached and no Machine of the control plane is replaced yet.
func (o Object) RollsNow(now time.Time) bool {
	return o.Running && !o.Rollout.IsZero() && !o.Rollout.After(now)
}

// RollsIn is the time until Rollout, zero if that is not in the future.
func (o Object) RollsIn(now time.Time) time.Duration {
	if o.Rollout.IsZero() {
		return 0
	}
	return max(o.Rollout.Sub(now), 0)
}

// Version is the Kubernetes version of the Machines of o that the topology controller has written.
func (o Object) Version() string {
	if controlPlane, ok := o.BootstrapObject.(*controlplanev1.KubeadmControlPlane); ok {
		return controlPlane.Spec.Version
	}
	if len(o.Pools) > 0 {
		return o.Pools[0].Version
	}
	return ""
}

// Infrastructure returns what the Machines of o are created from.
func (o Object) Infrastructure() (from []clusterv1.ContractVersionedObjectReference) {
	if controlPlane, ok := o.BootstrapObject.(*controlplanev1.KubeadmControlPlane); ok {
		from = append(from, controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef)
	}
	for _, p := range o.Pools {
		from = append(from, p.Infrastructure)
	}
	return from
}

// NewObject returns an object of a kind. running is Object.Running.
func NewObject(object kinds.BootstrapObject, kind string, running bool) Object {
	return Object{BootstrapObject: object, Kind: kind, Spec: kinds.View(object), Running: running}
}

// IsOwned reports whether an object has an owner of a UID. Only a Secret that its Cluster owns is deleted.
func IsOwned(object metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

func isOfMachine(object client.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && (owner.Kind == "Machine" || owner.Kind == "MachineSet")
}

// rolloutOf returns the time at which spec.rollout.after replaces all Machines of a control plane, or the zero time if
// it is not set or some of them are already replaced for it.
func rolloutOf(after metav1.Time, created []time.Time) time.Time {
	if slices.ContainsFunc(created, func(t time.Time) bool { return !t.Before(after.Time) }) {
		return time.Time{}
	}
	return after.Time
}

// groupsOf returns the control plane or the pools whose Machines get their bootstrap data from an object.
func groupsOf(o Object) (groups []outdated.Group) {
	if o.Kind == plan.KindControlPlane {
		return []outdated.Group{{Kind: o.Kind, Name: o.GetName()}}
	}
	for _, pool := range o.Pools {
		groups = append(groups, outdated.Group{Kind: pool.Kind, Name: pool.Object})
	}
	return groups
}
