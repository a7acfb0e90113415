package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Pass is one pass over one Cluster: what it has read, and what is decided about it.
type Pass struct {
	Cluster *clusterv1.Cluster
	// View is the Cluster as decisions read it, and Options what it asks for.
	View    settings.Cluster
	Options settings.Options
	Configs *Configs
	Secrets *Secrets
	// Writer writes annotations.
	Writer *Writer
	// Reconciled are the bootstrap objects in use after they are written, and Behind the Machines that are behind them.
	Reconciled []Reconciled
	Behind     []outdated.Group

	// topology is nil for a Cluster without one.
	topology *Topology
	// objects are the bootstrap objects in use, late the KubeadmConfigs that were created without the webhook, and orphans
	// the templates that were patched for the Cluster and that no pool of it uses.
	objects, late, orphans []Object
	// missing are findings about objects that are missing or cannot be patched.
	missing Outcome
	// main are the settings of the Cluster, nil if they cannot be used or are not needed.
	main *settings.Resolution
	// expires is when the first trusted certificate in use expires, or the zero time.
	expires time.Time
	// current reports that the cached Cluster asks for the same as that of the API server.
	current bool
}

func (c *Controller) newPass(cluster *clusterv1.Cluster, view settings.Cluster) *Pass {
	p := &Pass{Cluster: cluster, View: view, Configs: c.reader.Configs(view), Writer: c.writer}
	p.Secrets = NewSecrets(c.writer, c.reader, c.Now, cluster, view, p.Configs)
	if view.Topology {
		p.topology = &Topology{
			Cluster: cluster, View: view, Reader: c.reader, Writer: c.writer, Secrets: p.Secrets, Now: c.Now,
		}
	}
	return p
}

// readOptions reads the settings in annotations and, with a topology, the variable. Its errors are for the user. The
// proxy of a Cluster without the label is removed, whatever they say.
func (p *Pass) readOptions() (err error) {
	if p.topology == nil || !p.View.Enabled {
		if p.Options, err = settings.ParseOptions(p.View.Annotations); err != nil && !p.View.Enabled {
			p.Options = settings.Options{Rollout: contract.RolloutOnNextRollout}
		}
		return err
	}
	if p.topology.Settings, err = settings.Of(p.Cluster); err != nil {
		return err
	}
	if p.topology.Version, err = settings.OutputVersion(p.Cluster.Annotations); err != nil {
		return err
	}
	p.Options, p.View = p.topology.Settings.Options, p.topology.Settings.ApplyTo(p.View)
	p.topology.View = p.View
	return nil
}

// gather reads the bootstrap objects of a Cluster.
func (c *Controller) gather(ctx context.Context, p *Pass) error {
	patched, err := c.reader.PatchedFor(ctx, p.View)
	if err != nil {
		return err
	}
	if p.objects, p.missing, err = c.reader.Collect(ctx, p.View, patched); err != nil {
		return err
	}
	p.orphans = orphansOf(p.objects, patched)
	p.late, err = p.Configs.Late(ctx)
	return err
}

// orphansOf returns those of patched, the templates that were patched for the Cluster, that no pool of it uses. A
// KubeadmConfigTemplate can outlive its use: its pool got a new one, or it now serves a pool of another Cluster.
func orphansOf(objects []Object, patched []bootstrapv1.KubeadmConfigTemplate) (orphans []Object) {
	for i := range patched {
		template := &patched[i]
		known := func(o Object) bool { return o.Kind == plan.KindTemplate && o.GetName() == template.Name }
		if !slices.ContainsFunc(objects, known) && !slices.ContainsFunc(orphans, known) {
			orphans = append(orphans, NewObject(template, plan.KindTemplate, false))
		}
	}
	return orphans
}

// hasNothingOfOurs reports whether a Cluster without the label has nothing of ours: no condition, and none of the
// entries that may be left without one: by a process that was killed, by a webhook that patched objects before the
// first pass saw them, or by Cluster API, which copies templates as its cache shows them.
func (c *Controller) hasNothingOfOurs(ctx context.Context, p *Pass) (bool, error) {
	if _, frozen := settings.FreezeOf(p.Cluster.Annotations); p.View.Enabled || frozen || HasCondition(p.Cluster) ||
		slices.ContainsFunc(c.Steps, func(step Step) bool { return step.Needs(p.Cluster) }) {
		return false, nil
	}
	written, rendered, err := p.Secrets.Makers(ctx)
	if err != nil || written {
		return false, err
	}
	isRendered := func(secret string) bool { return slices.Contains(rendered, secret) }
	return !slices.ContainsFunc(slices.Concat(p.objects, p.late, p.orphans), func(o Object) bool {
		return plan.IsPausedByUs(o.GetAnnotations()) ||
			patch.IsPatched(o.Spec) && !o.IsTopologyOwned() && !slices.ContainsFunc(patch.References(o.Spec), isRendered)
	}), nil
}

// CheckCurrent is called before entries are removed, Machines are replaced or running nodes are restored, see the
// function CheckCurrent. It asks the API server once a pass.
func (p *Pass) CheckCurrent(ctx context.Context) error {
	if p.current {
		return nil
	}
	if err := CheckCurrent(ctx, p.Writer.Live, p.Cluster); err != nil {
		return err
	}
	p.current = true
	return nil
}

func count(counter func(outcome string), outcome string) {
	if counter != nil {
		counter(outcome)
	}
}

// resolve finds the settings of the Cluster or, if override is not "", of the pool that names it. It returns nil if the
// outcome has a finding about them.
func (c *Controller) resolve(ctx context.Context, p *Pass, override, pool string) (
	found *settings.Resolution, out Outcome, err error,
) {
	resolver := settings.Resolver{Now: c.Now, Object: pool}
	resolution, err := c.Memory.Resolve(ctx, resolver, p.View, p.Options, override)
	if found := finding.Of(err); len(found) > 0 {
		count(c.Resolved, found[0].Reason)
		out.AddAll(found...)
		if found.Has(contract.ReasonSettingsNotFound) {
			out.RequeueIn(c.reporter.memory.missingDelay())
		}
		return nil, out, nil
	}
	if err != nil {
		count(c.Resolved, contract.ReasonInternalError)
		return nil, out, err
	}
	count(c.Resolved, contract.ReasonConfigured)
	if !resolution.Complete {
		out.Add(contract.ReasonWaitingForEndpoint,
			"spec.controlPlaneEndpoint of Cluster %s/%s is not set yet; bootstrap data waits for it, because NO_PROXY must "+
				"contain it",
			p.View.Namespace, p.View.Name)
	}
	if note := resolution.Note(); note != "" {
		out.Note("%s", note)
	}
	out.Warnings = resolution.Warnings
	if expires := resolution.Settings.TrustedCAExpiry(); !expires.IsZero() &&
		(p.expires.IsZero() || expires.Before(p.expires)) {
		p.expires = expires
	}
	return &resolution, out, nil
}

// maxMachines is how many Machines of a Cluster are looked at.
const maxMachines = 100

// proxiedNodes warns of nodes that those of the control plane ask through the proxy. Only for settings with which
// that can be, it reads the Machines, of which the cache has the metadata.
func (c *Controller) proxiedNodes(ctx context.Context, p *Pass) (warnings []finding.Finding, err error) {
	if p.main == nil || !p.main.ReachesNodes(p.Options) {
		return nil, nil
	}
	var list clusterv1.MachineList
	if err := c.Live.List(ctx, &list, client.InNamespace(p.View.Namespace), client.Limit(maxMachines),
		client.MatchingLabels{clusterv1.ClusterNameLabel: p.View.Name}); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	return p.main.ProxiedNodes(p.Options, list.Items), nil
}
