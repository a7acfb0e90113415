// Package reconcile has the steps of a pass over one Cluster. It reads its bootstrap objects and carries out decisions
// about them, maintains the Secrets that its nodes read, compares what the topology controller owns with what the hook
// makes, and finds the Machines whose bootstrap data differs from that of a new one.
package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
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

// Reconciled is an object with the outcome of its decision.
type Reconciled struct {
	Object

	// Decision is the decision about the object; about one that a topology owns, the hook's about its template.
	Decision plan.Decision
	// Recipe is the desired recipe of the object, nil if that is not known. Secret is the generated Secret that it refers
	// to.
	Recipe *patch.Recipe
	Secret string
	// Proxy is the proxy Secret whose proxy the object should have, or "" if it should have none or that is not known.
	Proxy string
	// Waits is the finding about a control plane that waits for its next rollout, nil if it does not. It is set where
	// running nodes get the files meanwhile.
	Waits *finding.Finding
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

// IsOwned reports whether an object has an owner of a UID. Only a Secret that its Cluster owns is deleted.
func IsOwned(object metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// Reader reads from the cache.
type Reader struct {
	Client client.Reader
}

// PatchedFor reads the KubeadmConfigTemplates that were patched for a Cluster.
func (r Reader) PatchedFor(ctx context.Context, cluster intent.Cluster) ([]bootstrapv1.KubeadmConfigTemplate, error) {
	var templates bootstrapv1.KubeadmConfigTemplateList
	if err := r.Client.List(ctx, &templates, client.InNamespace(cluster.Namespace),
		client.MatchingFields{world.IndexPatchedFor: cluster.Name}); err != nil {
		return nil, fmt.Errorf("listing KubeadmConfigTemplates: %w", err)
	}
	return templates.Items, nil
}

// Collect reads the bootstrap objects of a Cluster from the cache, the control plane first and then pools by name.
// templates are some that are read already: the objects are those, not copies. Objects that are missing or cannot be
// patched are findings.
func (r Reader) Collect(ctx context.Context, cluster intent.Cluster, templates []bootstrapv1.KubeadmConfigTemplate) (
	[]Object, report.Outcome, error,
) {
	pools, err := r.Pools(ctx, cluster)
	if err != nil {
		return nil, report.Outcome{}, err
	}
	var found report.Outcome
	objects := make([]Object, 0, 1+len(pools))
	switch {
	case cluster.ControlPlaneKind == plan.KindControlPlane:
		controlPlane := &controlplanev1.KubeadmControlPlane{}
		exists, err := r.Get(ctx, cluster.Namespace, cluster.ControlPlaneName, controlPlane)
		if err != nil {
			return nil, report.Outcome{}, err
		}
		if !exists {
			found.Add(contract.ReasonWaitingForObjects, "%s %s/%s does not exist yet", plan.KindControlPlane, cluster.Namespace,
				cluster.ControlPlaneName)
			break
		}
		created, err := r.controlPlaneMachines(ctx, cluster)
		if err != nil {
			return nil, report.Outcome{}, err
		}
		object := NewObject(controlPlane, plan.KindControlPlane,
			len(created) > 0 || ptr.Deref(controlPlane.Status.Replicas, 0) > 0)
		if paused := meta.FindStatusCondition(controlPlane.Status.Conditions, clusterv1.PausedCondition); paused != nil {
			object.Busy = !plan.AtRest(paused.Status) && controlPlane.DeletionTimestamp.IsZero()
		}
		object.Rollout = rolloutOf(controlPlane.Spec.Rollout.After, created)
		objects = append(objects, object)
	case cluster.ControlPlaneKind != "":
		created, err := r.controlPlaneMachines(ctx, cluster)
		if err != nil {
			return nil, report.Outcome{}, err
		}
		foreign := fmt.Sprintf("%s %s/%s", cluster.ControlPlaneKind, cluster.Namespace, cluster.ControlPlaneName)
		switch {
		case len(created) > 0:
			found.Add(contract.ReasonTemplateNotSupported,
				"%s is not a %s and its Machines are not patched; pools with kubeadm bootstrap objects are",
				foreign, plan.KindControlPlane)
		case len(pools) > 0: // a hosted control plane alone has no nodes yet
			found.Note("%s has no Machines and is not patched", foreign)
		}
	}

	for _, p := range pools {
		switch {
		case p.Bootstrap.Name == "":
			found.Note("%s has its own bootstrap data and is not patched", p)
			continue
		case p.Bootstrap.Kind != p.BootstrapKind():
			found.Add(contract.ReasonTemplateNotSupported,
				"%s uses %s %s, which cannot be patched; only kubeadm bootstrap objects can",
				p, p.Bootstrap.Kind, p.Bootstrap.Name)
			continue
		}
		if known := slices.IndexFunc(objects, func(o Object) bool {
			return o.Kind == p.Bootstrap.Kind && o.GetName() == p.Bootstrap.Name
		}); known >= 0 {
			objects[known].Pools = append(objects[known].Pools, p)
			continue
		}
		object, err := r.bootstrapOf(ctx, cluster.Namespace, p, templates)
		if err != nil {
			return nil, report.Outcome{}, err
		}
		if object == nil {
			found.Add(contract.ReasonWaitingForObjects, "%s %s/%s does not exist yet", p.Bootstrap.Kind, cluster.Namespace,
				p.Bootstrap.Name)
			continue
		}
		object.Pools = []plan.Pool{p}
		objects = append(objects, *object)
	}
	return objects, found, nil
}

func isOfMachine(object client.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && (owner.Kind == "Machine" || owner.Kind == "MachineSet")
}

// bootstrapOf reads the bootstrap object of a pool. It returns nil if there is none.
func (r Reader) bootstrapOf(ctx context.Context, namespace string, p plan.Pool,
	templates []bootstrapv1.KubeadmConfigTemplate,
) (*Object, error) {
	if p.Bootstrap.Kind == plan.KindTemplate {
		var template *bootstrapv1.KubeadmConfigTemplate
		for i := range templates {
			if templates[i].Name == p.Bootstrap.Name {
				template = &templates[i]
			}
		}
		if template == nil {
			template = &bootstrapv1.KubeadmConfigTemplate{}
			exists, err := r.Get(ctx, namespace, p.Bootstrap.Name, template)
			if err != nil || !exists {
				return nil, err
			}
		}
		object := NewObject(template, plan.KindTemplate, false)
		return &object, nil
	}
	config := &bootstrapv1.KubeadmConfig{}
	exists, err := r.Get(ctx, namespace, p.Bootstrap.Name, config)
	if err != nil || !exists {
		return nil, err
	}
	object := NewObject(config, plan.KindConfig, config.Status.DataSecretName != "")
	return &object, nil
}

// NewObject returns an object of a kind. running is Object.Running.
func NewObject(object kinds.BootstrapObject, kind string, running bool) Object {
	return Object{BootstrapObject: object, Kind: kind, Spec: kinds.View(object), Running: running}
}

// ForeignUser returns a pool of another Cluster that uses the template too, or nil.
func (r Reader) ForeignUser(ctx context.Context, cluster intent.Cluster, o Object) (*plan.Pool, error) {
	if o.Kind != plan.KindTemplate {
		return nil, nil //nolint:nilnil // "no other user" is an answer, not an error
	}
	var deployments clusterv1.MachineDeploymentList
	if err := r.Client.List(ctx, &deployments, client.InNamespace(cluster.Namespace),
		client.MatchingFields{world.IndexBootstrap: o.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments of %s: %w", o, err)
	}
	var others []plan.Pool
	for i := range deployments.Items {
		if p := plan.PoolOf(&deployments.Items[i]); p.Cluster != cluster.Name && p.Bootstrap.Kind == plan.KindTemplate {
			others = append(others, p)
		}
	}
	if len(others) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	first := slices.MinFunc(others, func(a, b plan.Pool) int { return cmp.Compare(a.String(), b.String()) })
	return &first, nil
}

// Get reads an object from the cache and reports whether it exists.
func (r Reader) Get(ctx context.Context, namespace, name string, object client.Object) (bool, error) {
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s/%s: %w", namespace, name, err)
	}
	return true, nil
}
