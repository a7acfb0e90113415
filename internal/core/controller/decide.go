package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Reconciled is an object with the decision about it, and what applying the decision has changed.
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
	// Drift is how an object of a topology differs from its template.
	Drift Drift
	// Change is what has changed. Spec of Object is that after the change.
	Change Change

	// outcome is that of the decision, or of the inspection of an object of a topology; "" if there was none.
	outcome string
	// applies reports that the decision is to be applied.
	applies bool
}

// decide decides about all objects of a Cluster, those in use first. It writes nothing.
func (c *Controller) decide(ctx context.Context, p *Pass, done *Result) (err error) {
	if p.View.Enabled {
		if err := c.decideSettings(ctx, p, done); err != nil {
			return err
		}
	}
	for _, o := range p.objects {
		one, found, err := c.decideObject(ctx, p, o, c.want(p))
		if err == nil {
			c.addNotes(ctx, p, &one, &found)
		}
		if done.Join(found); err != nil {
			return err
		}
		done.Reconciled = append(done.Reconciled, one)
	}
	for _, o := range p.late {
		one, found, err := c.decideObject(ctx, p, o, c.want(p))
		if err != nil {
			return err
		}
		c.addNotes(ctx, p, &one, &found)
		if one.outcome = ""; p.View.Enabled { // findings about them are reported with their template
			found.Findings = nil
		}
		done.Join(found)
		done.others = append(done.others, one)
	}
	for _, o := range p.orphans {
		one, found, err := c.decideOrphan(ctx, p, o)
		if done.Join(found); err != nil {
			return err
		}
		done.others = append(done.others, one)
	}
	return nil
}

// decideSettings finds the settings of an enabled Cluster and, for its topology, those of its templates.
func (c *Controller) decideSettings(ctx context.Context, p *Pass, done *Result) (err error) {
	main, found, err := c.resolve(ctx, p, "", "")
	if done.Join(found); err != nil {
		return err
	}
	p.main = main
	warnings, err := c.proxiedNodes(ctx, p)
	if err != nil {
		return err
	}
	done.Warnings = append(done.Warnings, warnings...)
	done.Join(p.missing)
	if p.topology == nil {
		return nil
	}
	found, err = p.topology.decideSecrets(ctx, p.objects, main, func(override, pool string) (
		*settings.Resolution, Outcome, error,
	) {
		return c.resolve(ctx, p, override, pool)
	})
	done.Join(found)
	return err
}

// want is the desired state of a Cluster.
func (c *Controller) want(p *Pass) plan.Want {
	return plan.Want{Cluster: p.View.Name, Enabled: p.View.Enabled, Options: p.Options, Admission: c.Admission}
}

// decideOrphan decides about a template that no pool of the Cluster uses. It loses our entries if it is used by an
// unlabelled Cluster, and when the Cluster is not enabled any more: until then it may still serve an old MachineSet.
func (c *Controller) decideOrphan(ctx context.Context, p *Pass, orphan Object) (Reconciled, Outcome, error) {
	keep := Reconciled{Object: orphan}
	user, err := c.reader.ForeignUser(ctx, p.View, orphan)
	if err != nil {
		return keep, Outcome{}, err
	}
	otherEnabled := false
	if user != nil {
		cluster := &clusterv1.Cluster{}
		exists, err := c.reader.Get(ctx, p.View.Namespace, user.Cluster, cluster)
		if err != nil {
			return keep, Outcome{}, err
		}
		otherEnabled = exists && settings.StateOf(cluster.Labels) != settings.Disabled
	}
	if otherEnabled || user == nil && p.View.Enabled {
		p.Secrets.Keep(patch.References(orphan.Spec)...)
		return keep, Outcome{}, nil
	}
	remove := c.want(p)
	remove.Enabled = false
	return c.decideObject(ctx, p, orphan, remove)
}

// decideObject decides about one bootstrap object, or compares it with its template if the topology controller owns it.
func (c *Controller) decideObject(ctx context.Context, p *Pass, o Object, want plan.Want) (
	one Reconciled, out Outcome, err error,
) {
	one.Object = o
	if c.guarded.IsBehind(o.BootstrapObject) {
		return one, out, CacheBehind(o.Kind, o.BootstrapObject)
	}
	object := plan.Object{
		Kind: o.Kind, Name: o.String(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(),
		Spec: o.Spec, Pools: o.Pools, OfMachine: o.IsOfMachine(),
		Running: o.Running, Busy: o.Busy, Rolls: o.RollsNow(c.Now()), Deleted: !o.GetDeletionTimestamp().IsZero(),
	}
	switch {
	case !o.IsTopologyOwned(), p.topology == nil && p.View.Enabled: // decided below, as is a KubeadmConfig of a Machine
	case p.topology == nil:
		return one, out, nil
	case o.IsOfMachine():
		from, err := p.topology.copiedFrom(ctx, o, want)
		if err != nil {
			return one, out, err
		}
		object.Copied = &from
	case p.View.Enabled:
		return p.topology.inspect(o, want)
	default:
		one.Drift, out = p.topology.leave(o)
		return one, out, nil
	}
	if want.Enabled {
		if object.Foreign, err = c.reader.ForeignUser(ctx, p.View, o); err != nil {
			return one, out, err
		}
	}
	decision, err := plan.Decide(object, want, facts{controller: c, pass: p, ctx: ctx, out: &out})
	if err != nil {
		return one, out, err
	}
	c.accept(p, &one, decision, &out)
	return one, out, nil
}

// accept records a decision that is to be applied, and reports its findings.
func (c *Controller) accept(p *Pass, one *Reconciled, decision plan.Decision, out *Outcome) {
	one.Decision, one.outcome, one.applies = decision, decision.Outcome(), true
	one.Recipe, one.Secret = decision.Recipe, decision.Secret
	count(c.Rendered, one.outcome)
	if decision.Resolution != nil {
		one.Proxy = decision.Resolution.Secret.Name.String()
	}
	for _, f := range decision.Report() {
		if p.waitsWithFiles(one.Object, f) {
			one.Waits = &f
			continue
		}
		out.AddAll(f)
	}
	if decision.Waits {
		out.RequeueIn(one.RollsIn(c.Now()))
	}
}

// waitsWithFiles reports whether f says that a control plane waits for a rollout whose running nodes get the files.
func (p *Pass) waitsWithFiles(o Object, f finding.Finding) bool {
	return f.Reason == contract.ReasonWaitingForRollout && o.Kind == plan.KindControlPlane && p.View.Enabled &&
		contract.ReachesNodes(p.Options.Rollout)
}

// facts implements plan.Facts for one object.
type facts struct {
	controller *Controller
	pass       *Pass
	ctx        context.Context //nolint:containedctx // lives as long as the decision that it is made for
	// out gets the findings about the facts.
	out *Outcome
}

func (f facts) Values(o plan.Object) (plan.Values, error) {
	if o.Override() == "" {
		return plan.Values{Resolution: f.pass.main}, nil
	}
	resolution, found, err := f.controller.resolve(f.ctx, f.pass, o.Override(), o.Overrider())
	f.out.Join(found)
	return plan.Values{Resolution: resolution}, err
}

func (f facts) Taken(o plan.Object, secret string) (string, error) {
	if o.Copied != nil { // the names of the topology's Secrets are checked, and no other is worth a request
		return f.pass.Secrets.Taken(secret), nil
	}
	why, found, err := f.pass.Secrets.WhyTaken(f.ctx, secret)
	f.out.Join(found)
	return why, err
}

func (f facts) Infrastructure(o plan.Object) (plan.Infrastructure, error) {
	found, again, err := f.controller.Memory.Templates(f.ctx, f.pass.View.Namespace, o.Pools, o.OfMachine)
	if !o.OfMachine {
		f.out.RequeueIn(again)
	}
	return found, err
}

func (f facts) Begun() (bool, error) {
	return world.ControlPlanes{Cached: f.controller.Client, Live: f.controller.Live}.
		Begun(f.ctx, f.pass.View.Namespace, f.pass.View.Name)
}

// addNotes adds warnings about what an object with the proxy does not do, and about user data that is too large.
func (c *Controller) addNotes(ctx context.Context, p *Pass, one *Reconciled, out *Outcome) {
	c.checkUserData(ctx, p, one, out)
	one.Decision.Notes = c.notes(ctx, p, one.Object, one.Decision)
	for _, note := range one.Decision.Notes {
		note.Place = note.Place.Of(one.String())
		out.Warnings = append(out.Warnings, note)
	}
}

// notes returns plan.Notes of an object that gets the proxy. A machine template that cannot be read has none.
func (c *Controller) notes(ctx context.Context, p *Pass, o Object, decision plan.Decision) []finding.Finding {
	if decision.Secret == "" || o.IsOfMachine() {
		return nil
	}
	booted := plan.Booted{
		Spec: o.Spec, Own: kinds.SpecOf(o.BootstrapObject), Targets: decision.Recipe.Targets, Options: p.Options,
		Resolution: cmp.Or(decision.Resolution, &settings.Resolution{}),
	}
	for _, ref := range o.Infrastructure() {
		if ref.Kind == plan.KindAWS && booted.Early == (plan.Early{}) {
			template, _ := c.Memory.Template(ctx, p.View.Namespace, ref, false)
			booted.Early = template.Early
		}
	}
	return plan.Notes(booted)
}

// checkUserData warns if the user data of Machines of an object, with its entries, is larger than their cloud takes. A
// machine template that cannot be read says nothing about it.
func (c *Controller) checkUserData(ctx context.Context, p *Pass, o *Reconciled, out *Outcome) {
	recipe, found := o.Decision.Recipe, cmp.Or(o.Decision.Resolution, &settings.Resolution{})
	if recipe == nil || len(recipe.Files) == 0 {
		return
	}
	all, ours := patch.UserData(o.Spec, *recipe, found.Files, o.Kind == plan.KindControlPlane)
	kind, limit := p.View.Infrastructure.Kind, p.View.Facts.UserData
	for _, from := range o.Infrastructure() {
		if !strings.HasPrefix(from.Kind, "AWS") || all <= 16_384 { // only there it decides about the limit
			continue
		}
		if template, err := c.Memory.Template(ctx, p.View.Namespace, from, false); err == nil && template.UserData > 0 {
			kind, limit = from.Kind, template.UserData
		}
	}
	if limit > 0 && all > limit {
		large := finding.Finding{
			Code: patch.CodeUserData,
			Message: fmt.Sprintf("user data has at least %d bytes, %d of them of this product; %s takes %d", all, ours, kind,
				limit),
			Advice: "shorten files, commands, trustedCA or noProxy, or put files into the image of the Machines",
		}
		o.Decision.Warnings = append(slices.Clip(o.Decision.Warnings), large)
		out.Note("%s: %s", o, large)
	}
}
