package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// behind are the Machines of a control plane or MachineDeployment whose bootstrap data differs from that of a new one.
type behind struct {
	outdated.Group

	// replaceable is the creation time of the youngest Machine that only spec.rollout.after replaces, or the zero time.
	// Cluster API replaces Machines of a control plane, or of a topology, whose entries differ.
	replaceable time.Time
}

// rollOut finds the Machines that are behind the bootstrap objects and, if the Cluster asks for that, replaces them.
func (c *Controller) rollOut(ctx context.Context, p *Pass, done *Result) (out Outcome, err error) {
	groups, changed, err := c.behind(ctx, p)
	if err != nil {
		return out, err
	}
	for _, group := range groups {
		p.Behind = append(p.Behind, group.Group)
		if p.Options.Rollout != contract.RolloutImmediate || group.replaceable.IsZero() {
			continue
		}
		replaced, err := c.replace(ctx, p, group)
		if err != nil {
			return out, err
		}
		if replaced {
			done.RolledOut = append(done.RolledOut, group.Group)
		}
	}
	done.Behind, done.expires, done.changed = &p.Behind, p.expires, changed
	if sentence := outdated.Sentence(p.Behind); sentence != "" {
		out.AddAll(finding.Finding{Message: sentence, Progress: true})
	}
	out.AddAll(waiting(p.Reconciled, p.Behind)...)
	return out, nil
}

// behind compares the bootstrap data of Machines with the bootstrap objects, in their order. It only uses what Cluster
// API has recorded about the data, so that the answer is the same after a restart. latest is when the content of a
// generated Secret last changed, or the zero time.
func (c *Controller) behind(ctx context.Context, p *Pass) (groups []behind, latest time.Time, err error) {
	configs, err := p.Configs.List(ctx)
	if err != nil {
		return nil, latest, err
	}
	machines := map[string][]*bootstrapv1.KubeadmConfig{} // by MachineDeployment; those of the control plane by ""
	for i := range configs {
		config := &configs[i]
		owner := metav1.GetControllerOf(config)
		if config.Status.DataSecretName == "" || !config.DeletionTimestamp.IsZero() || owner == nil ||
			owner.Kind != "Machine" {
			continue // without data, being deleted, or of a MachinePool, whose data Cluster API regenerates
		}
		deployment := config.Labels[clusterv1.MachineDeploymentNameLabel]
		if _, controlPlane := config.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane != (deployment == "") {
			continue
		}
		machines[deployment] = append(machines[deployment], config)
	}
	for _, o := range p.Reconciled {
		if o.Recipe == nil {
			continue
		}
		changed, err := p.Secrets.ChangedAt(ctx, o.Secret)
		if err != nil {
			return nil, latest, err
		}
		if changed.After(latest) {
			latest = changed
		}
		begin := len(groups)
		if o.Kind == plan.KindControlPlane {
			groups = append(groups, lagging(c.Memory, machines[""], o, o.Kind, o.GetName(), changed))
		}
		for _, pool := range o.Pools {
			groups = append(groups, lagging(c.Memory, machines[pool.Object], o, pool.Kind, pool.Object, changed))
		}
		if o.Proxy == "" && len(o.Recipe.Files) > 0 { // new Machines would wait for settings that cannot be used
			for i := range groups[begin:] {
				groups[begin+i].replaceable = time.Time{}
			}
		}
	}
	return slices.DeleteFunc(groups, func(b behind) bool { return len(b.Machines) == 0 }), latest, nil
}

// lagging picks the Machines that are behind o.
func lagging(memory *world.Memory, configs []*bootstrapv1.KubeadmConfig, o Reconciled, kind, name string,
	changed time.Time,
) behind {
	group := behind{Group: outdated.Group{Kind: kind, Name: name}}
	for _, config := range configs {
		at := memory.FirstMade(config.UID, madeAt(config))
		update := plan.UpdateOf(config.Annotations)
		lag := plan.LagOf(kinds.View(config), *o.Recipe, at, update, changed)
		// Cluster API writes the new spec before an extension has changed the Machine.
		_, updating := config.Annotations[clusterv1.UpdateInProgressAnnotation]
		if updating && lag == outdated.Current {
			lag = outdated.OldEntries
		}
		if lag == outdated.Current {
			continue
		}
		group.Machines = append(group.Machines, outdated.Machine{
			Name: metav1.GetControllerOf(config).Name, Lag: lag, Updated: update.Has(changed),
			Created: config.CreationTimestamp.Time, Made: at,
		})
		byItself := updating || lag == outdated.OldEntries && (kind == plan.KindControlPlane || o.IsTopologyOwned())
		if created := config.CreationTimestamp.Time; !byItself && created.After(group.replaceable) {
			group.replaceable = created
		}
	}
	slices.SortFunc(group.Machines, func(a, b outdated.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return group
}

// madeAt is when the bootstrap data of config was generated.
func madeAt(config *bootstrapv1.KubeadmConfig) time.Time {
	available := meta.FindStatusCondition(config.Status.Conditions, bootstrapv1.KubeadmConfigDataSecretAvailableCondition)
	if available != nil && available.Status == metav1.ConditionTrue {
		return available.LastTransitionTime.Time
	}
	return config.CreationTimestamp.Time
}

// replace makes Cluster API replace the Machines of a group by setting rollout.after, and reports whether it has set
// it: Machines that are older than rollout.after are being replaced already, and a time in the future is the user's
// schedule.
func (c *Controller) replace(ctx context.Context, p *Pass, group behind) (bool, error) {
	cluster := p.Cluster
	var (
		object client.Object
		after  *metav1.Time
	)
	switch group.Kind {
	case plan.KindControlPlane:
		controlPlane := &controlplanev1.KubeadmControlPlane{}
		object, after = controlPlane, &controlPlane.Spec.Rollout.After
	case settings.KindMachineDeployment:
		deployment := &clusterv1.MachineDeployment{}
		object, after = deployment, &deployment.Spec.Rollout.After
	default:
		return false, nil
	}
	exists, err := c.reader.Get(ctx, cluster.Namespace, group.Name, object)
	if err != nil || !exists || !object.GetDeletionTimestamp().IsZero() || plan.IsPausedByUser(object.GetAnnotations()) ||
		!plan.Replaces(group.replaceable, after.Time) {
		return false, err
	}
	now := c.Now().UTC().Format(time.RFC3339)
	target, kind, changes := object, types.MergePatchType, []any{rolloutAfter(object, now)}
	if plan.IsTopologyOwned(object.GetLabels()) {
		// The topology controller would revert it; it copies the time from the Cluster.
		target = cluster
		if kind, changes = topologyRollout(cluster, group, object, now); changes == nil {
			return false, nil
		}
	}
	if err := p.CheckCurrent(ctx); err != nil {
		return false, err
	}
	ctrl.LoggerFrom(ctx).Info("Rolling out, because Machines are behind and annotation rollout is Immediate", group.Kind,
		klog.KObj(object), "machines", len(group.Machines))
	for _, change := range changes {
		data, encodeErr := json.Marshal(change)
		if encodeErr != nil {
			return false, fmt.Errorf("encoding rollout of %s %s: %w", group.Kind, klog.KObj(object), encodeErr)
		}
		err = c.Client.Patch(ctx, target, client.RawPatch(kind, data), client.FieldOwner(contract.Name))
		if !apierrors.IsInvalid(err) {
			break
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("setting rollout.after of %s %s: %w", group.Kind, klog.KObj(object), err)
	}
	c.reporter.RolloutStarted(cluster, object, fmt.Sprintf("%s %s", group.Kind, klog.KObj(object)))
	return true, nil
}

// rolloutAfter is the merge patch that sets rollout.after to now in a part of the spec of an object.
func rolloutAfter(object client.Object, now string, path ...string) any {
	spec := map[string]any{"rollout": map[string]any{"after": now}}
	for _, name := range slices.Backward(path) {
		spec = map[string]any{name: spec}
	}
	return map[string]any{
		"metadata": map[string]any{"resourceVersion": object.GetResourceVersion()}, "spec": spec,
	}
}

// topologyRollout are the patches that set rollout.after in the topology of the Cluster. Each is for a Cluster for
// which the API server refuses the one before. There are none if the object is not in the topology any more, or if the
// time is already set and will reach the object.
func topologyRollout(
	cluster *clusterv1.Cluster, group behind, object client.Object, now string,
) (types.PatchType, []any) {
	topology := cluster.Spec.Topology
	if group.Kind == plan.KindControlPlane {
		if !topology.IsDefined() || !plan.Replaces(group.replaceable, topology.ControlPlane.Rollout.After.Time) {
			return "", nil
		}
		return types.MergePatchType, []any{rolloutAfter(cluster, now, "topology", "controlPlane")}
	}
	name := object.GetLabels()[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
	i := slices.IndexFunc(topology.Workers.MachineDeployments,
		func(p clusterv1.MachineDeploymentTopology) bool { return p.Name == name })
	if i < 0 || !plan.Replaces(group.replaceable, topology.Workers.MachineDeployments[i].Rollout.After.Time) {
		return "", nil
	}
	path := fmt.Sprintf("/spec/topology/workers/machineDeployments/%d/rollout", i)
	version := patch.Operation{Op: "replace", Path: "/metadata/resourceVersion", Value: cluster.ResourceVersion}
	set := []patch.Operation{version, {Op: "add", Path: path + "/after", Value: now}}
	if topology.Workers.MachineDeployments[i].Rollout == (clusterv1.MachineDeploymentTopologyRolloutSpec{}) {
		// It may have fields that this version does not know; then the second patch is possible.
		absent := []patch.Operation{
			version, patch.IsAbsent(path), {Op: "add", Path: path, Value: map[string]string{"after": now}},
		}
		return types.JSONPatchType, []any{absent, set}
	}
	return types.JSONPatchType, []any{set}
}
