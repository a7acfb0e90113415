package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// The templates of a Cluster with a ClusterClass are patched by the topology hook, and a write of anybody else to what
// they become would be undone. For them this package keeps the Secrets, looks, and reports. Pools beside the topology are
// treated as those of any Cluster.

// indexTopology finds the patched KubeadmConfigTemplates of a topology by their Cluster, used or not.
const indexTopology = "topologyOf"

// topologyDelay is how long the topology controller may take before a ClusterClass is taken not to declare the patch.
const topologyDelay = 10 * time.Second

// topologyPass is what a pass knows about the topology of an enabled Cluster.
type topologyPass struct {
	settings intent.Topology
	// version is the output version of the templates.
	version int
	// resolutions are what the Cluster, under "", and pools that name another Secret get. One that cannot be used is nil.
	resolutions map[string]*resolve.Resolution
	// lacking are objects without the proxy, stale those with another one than they should have.
	lacking, stale []string
}

// pool returns what the topology says about a pool. One that is on its way out is in the topology no more.
func (t *topologyPass) pool(p plan.Pool) (intent.Pool, bool) {
	i := slices.IndexFunc(t.settings.Pools, func(s intent.Pool) bool { return s.Kind == p.Kind && s.Name == p.Name })
	if i < 0 {
		return intent.Pool{}, false
	}
	return t.settings.Pools[i], true
}

// complete adds what the ClusterClass says about pools: annotations of its classes are not in the Cluster. The hook is told
// of them, and the topology controller gives them to the objects of the pools.
func (t *topologyPass) complete(objects []bootstrapObject) {
	for _, o := range objects {
		for _, p := range o.pools {
			i := slices.IndexFunc(t.settings.Pools, func(s intent.Pool) bool { return s.Kind == p.Kind && s.Name == p.Name })
			if i >= 0 && t.settings.Pools[i].Override == "" {
				t.settings.Pools[i].Override = p.Override
			}
		}
	}
}

// options reads what annotations and, with a ClusterClass, the variable ask for. Its errors are for the user.
func (r *reconciliation) options() (intent.Options, error) {
	if !r.view.Topology {
		return intent.ParseOptions(r.view.Annotations)
	}
	settings, err := intent.TopologyOf(r.cluster)
	if err != nil {
		return intent.Options{}, err
	}
	version, err := intent.OutputVersion(r.cluster.Annotations)
	if err != nil {
		return intent.Options{}, err
	}
	r.topology = &topologyPass{settings: settings, version: version}
	r.view = settings.ApplyTo(r.view)
	return settings.Options, nil
}

// topologySecrets resolves what the templates of the topology get and, in Reference delivery, keeps the Secrets that they
// will refer to. They are there before the templates are, which nobody else tells.
func (r *reconciliation) topologySecrets(ctx context.Context, objects []bootstrapObject, options intent.Options, main *resolve.Resolution) error {
	if r.topology == nil {
		return nil
	}
	r.topology.complete(objects)
	r.topology.resolutions = map[string]*resolve.Resolution{"": main}
	for _, pool := range append([]intent.Pool{{}}, r.topology.settings.Pools...) {
		if !pool.UsesProxy() {
			continue
		}
		resolution, known := r.topology.resolutions[pool.Override]
		if !known {
			var err error
			if resolution, err = r.resolve(ctx, options, pool.Override, pool.String()); err != nil {
				return err
			}
			r.topology.resolutions[pool.Override] = resolution
		}
		if options.Delivery != contract.DeliveryReference {
			continue
		}
		name := pool.GeneratedSecret(r.view.Name)
		why, err := r.whyTaken(ctx, name)
		if err != nil {
			return err
		}
		if resolution == nil || why != "" {
			r.needed[name] = true // as it is
			continue
		}
		if err := r.ensureSecret(ctx, name, *resolution); err != nil {
			return err
		}
	}
	return nil
}

// ofTopology is what the hook decides about the template of an object of the topology. known is false for an object whose pool
// is on its way out.
func (r *reconciliation) ofTopology(o bootstrapObject, options intent.Options) (decision plan.Decision, known bool) {
	var pool intent.Pool
	object := plan.Object{
		Kind: o.kind, Name: o.String(), Spec: o.spec, Hooked: true,
		Facts: plan.Facts{Taken: map[string]string{}, Infrastructure: &plan.Infrastructure{}, Originals: &plan.Originals{}},
	}
	if len(o.pools) > 0 {
		if pool, known = r.topology.pool(o.pools[0]); !known {
			return plan.Decision{}, false
		}
		object.Pools = []plan.Pool{plan.TopologyPool(pool)}
	}
	object.Facts.Values = &plan.Values{Resolution: r.topology.resolutions[pool.Override]}
	secret := pool.GeneratedSecret(r.view.Name)
	object.Facts.Taken[secret] = r.taken[secret]
	want := r.want(options)
	want.Version = r.topology.version
	return plan.Decide(object, want), true
}

// isFrozen reports whether the topology hold keeps an object as it is.
func (r *reconciliation) isFrozen(o bootstrapObject) bool {
	return !intent.IsEnabledAt(r.cluster.Labels, r.cluster.Annotations, versionOf(o))
}

// inspect compares an object of the topology with what the hook makes of its template.
func (r *reconciliation) inspect(o *bootstrapObject, options intent.Options) {
	r.keepReferences(*o)
	decision, known := r.ofTopology(*o, options)
	patched := patch.IsPatched(o.spec)
	override := r.overrideOf(*o)
	switch {
	case !known:
	case override == contract.SecretNone:
		if patched {
			r.topology.stale = append(r.topology.stale, o.String())
		}
	case r.isFrozen(*o) && patch.Unsupported(o.spec) == "":
		r.reportHold(*o, contract.ReasonWaitingForRollout, "gets")
	case decision.Recipe == nil:
		r.found = append(r.found, decision.Report()...) // else a finding about the settings says why
	case !patched:
		r.topology.lacking = append(r.topology.lacking, o.String())
	case !plan.Carries(o.spec, *decision.Recipe):
		r.topology.stale = append(r.topology.stale, o.String())
	case len(decision.Edits) == 0:
		o.recipe, o.generated = decision.Recipe, decision.Secret
	}
	if decision.Proxied && !r.isFrozen(*o) && !decision.Incomplete {
		o.proxy = r.topology.resolutions[override].Secret.Name.String()
	}
}

// overrideOf is the proxy Secret that the topology gives to the pool of an object, "" for the Cluster's.
func (r *reconciliation) overrideOf(o bootstrapObject) string {
	if len(o.pools) == 0 {
		return ""
	}
	pool, _ := r.topology.pool(o.pools[0])
	return pool.Override
}

// copiedFrom is the template of the pool that a KubeadmConfig is of, nil if it is not known.
func (r *reconciliation) copiedFrom(ctx context.Context, o bootstrapObject, options intent.Options) (*plan.Copied, error) {
	if len(o.pools) == 0 {
		return nil, nil //nolint:nilnil // not known is an answer
	}
	template := &bootstrapv1.KubeadmConfigTemplate{}
	exists, err := r.get(ctx, r.view.Namespace, o.pools[0].Bootstrap.Name, template)
	if err != nil || !exists {
		return nil, err
	}
	from := &plan.Copied{
		Paused:  plan.IsPausedByUs(template.Spec.Template.ObjectMeta.Annotations),
		Patched: patch.IsPatched(patch.SpecOf(&template.Spec.Template.Spec)),
	}
	if r.view.Enabled && !r.isFrozen(o) {
		// What is wrong with it, findings about its template say.
		if decision, known := r.ofTopology(o, options); known && r.overrideOf(o) != contract.SecretNone {
			from.Recipe = decision.Recipe
			_, from.Conflict = errors.AsType[*patch.ConflictError](decision.Refused)
		}
	}
	return from, nil
}

// versionOf is the Kubernetes version of the Machines of an object, as the topology controller has written it.
func versionOf(o bootstrapObject) string {
	if controlPlane, ok := o.object.(*controlplanev1.KubeadmControlPlane); ok {
		return controlPlane.Spec.Version
	}
	if len(o.pools) > 0 {
		return o.pools[0].Version
	}
	return ""
}

// reportHold says what an object waits for that keeps the templates it has.
func (r *reconciliation) reportHold(o bootstrapObject, reason, verb string) {
	hold, _ := intent.FreezeOf(r.cluster.Annotations)
	r.found.add(reason, "%s has Machines, which a change would replace; it %s the proxy with the next upgrade of Kubernetes from %s, or when annotation %s of the Cluster is %s",
		o, verb, hold.Version, contract.AnnotationRollout, contract.RolloutImmediate)
}

// reportCopies says which KubeadmConfigs of a topology that is not enabled any more are still held back.
func (r *reconciliation) reportCopies(objects []bootstrapObject) {
	for _, o := range objects {
		if r.view.Topology && isOfMachine(o.object) && plan.IsTopologyOwned(o.object.GetLabels()) && plan.IsPausedByUs(o.object.GetAnnotations()) {
			r.found.add(contract.ReasonRemovalWaiting, "%s is paused until the topology controller gives its pool another template", o)
		}
	}
}

// restoreOwned keeps what an object of the topology refers to, and reports that it still has the proxy.
func (r *reconciliation) restoreOwned(o bootstrapObject) {
	r.keepReferences(o)
	if !patch.IsPatched(o.spec) {
		return
	}
	if intent.IsEnabledAt(nil, r.cluster.Annotations, versionOf(o)) {
		r.reportHold(o, contract.ReasonRemovalWaiting, "loses")
		return
	}
	r.found.add(contract.ReasonRemovalWaiting, "%s has the proxy until the topology controller removes it", o)
}

// settleTopology does what is left to do for a Cluster with a ClusterClass once its objects were seen to. missing are the
// findings about objects that were not there to be seen.
func (r *reconciliation) settleTopology(ctx context.Context, objects []bootstrapObject, missing findings) error {
	if !r.view.Topology {
		return nil
	}
	// An old template may still serve a MachineSet.
	var templates bootstrapv1.KubeadmConfigTemplateList
	if err := r.Client.List(ctx, &templates, client.InNamespace(r.view.Namespace), client.MatchingFields{indexTopology: r.view.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing KubeadmConfigTemplates: %w", err)
	}
	for i := range templates.Items {
		for _, name := range patch.References(patch.SpecOf(&templates.Items[i].Spec.Template.Spec)) {
			r.needed[name] = true
		}
	}
	want := map[string]string{contract.AnnotationSettingsHash: r.settingsHash(), contract.AnnotationEnabledBefore: ""}
	complete := !slices.ContainsFunc(missing, func(f finding.Finding) bool { return f.Reason == contract.ReasonWaitingForObjects })
	if hold, held := intent.FreezeOf(r.cluster.Annotations); held && (r.releases(hold) || complete && !holds(hold, objects)) {
		want[contract.AnnotationTopologyHold] = ""
	}
	if r.topology != nil {
		if r.view.ControlPlaneKind == "" {
			r.found.add(contract.ReasonWaitingForObjects, "the topology controller has not created the control plane yet")
		}
		r.reportTopology()
	}
	if len(plan.AnnotationOperations(r.cluster.Annotations, want)) == 0 {
		return nil
	}
	return r.annotate(ctx, r.cluster, want)
}

// releases reports whether the Cluster asks for an end of a hold, which the webhook was not there to see.
func (r *reconciliation) releases(hold intent.Freeze) bool {
	return hold.Enabled == r.view.Enabled || r.view.Annotations[contract.AnnotationRollout] == contract.RolloutImmediate
}

// holds reports whether a hold keeps any of objects as it is.
func holds(hold intent.Freeze, objects []bootstrapObject) bool {
	return slices.ContainsFunc(objects, func(o bootstrapObject) bool {
		return plan.IsTopologyOwned(o.object.GetLabels()) && hold.Covers(versionOf(o)) && patch.IsPatched(o.spec) == hold.Enabled
	})
}

// settingsHash is the value of contract.AnnotationSettingsHash, "" if there is to be none. There is no credential in it:
// settings with one make no recipe for Inline delivery.
func (r *reconciliation) settingsHash() string {
	if r.topology == nil || r.topology.settings.Options.Delivery != contract.DeliveryInline {
		return ""
	}
	var text strings.Builder
	for _, override := range slices.Sorted(maps.Keys(r.topology.resolutions)) {
		resolution := r.topology.resolutions[override]
		values := "unusable"
		if resolution != nil {
			if _, err := plan.Recipe(r.topology.settings.Options, r.topology.version, *resolution, ""); err == nil {
				values = fmt.Sprintf("%q %q %t", resolution.Settings.Vars(resolution.NoProxy.Value), patch.TrustedCABundle(resolution.Settings), resolution.Complete)
			}
		}
		fmt.Fprintf(&text, "%q %s\n", override, values)
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:])
}

// reportTopology tells of objects that are not as they should be. The topology controller gets some time before the
// ClusterClass is to blame.
func (r *reconciliation) reportTopology() {
	if len(r.topology.stale) > 0 {
		r.found.add(contract.ReasonWaitingForObjects, "the topology controller has not updated %s to the current settings yet", atMost(r.topology.stale))
	}
	if len(r.topology.lacking) == 0 {
		return
	}
	objects := atMost(r.topology.lacking)
	conditions := r.cluster.Status.Conditions
	if reconciled := meta.FindStatusCondition(conditions, clusterv1.ClusterTopologyReconciledCondition); reconciled != nil && reconciled.Status != metav1.ConditionTrue {
		r.found.add(contract.ReasonWaitingForObjects, "the topology controller has not patched %s yet; its condition %s has reason %s",
			objects, reconciled.Type, reconciled.Reason)
		return
	}
	reported := meta.FindStatusCondition(conditions, contract.ConditionProxyConfigured)
	left := topologyDelay
	switch {
	case reported == nil:
	case reported.Reason == contract.ReasonTemplateNotSupported:
		left = 0
	case reported.Status == metav1.ConditionUnknown:
		left -= r.Now().Sub(reported.LastTransitionTime.Time)
	}
	if left > 0 {
		r.found.add(contract.ReasonWaitingForObjects, "the topology controller has not patched %s yet", objects)
		r.lookAgain(left)
		return
	}
	class := r.cluster.GetClassKey()
	r.found.add(contract.ReasonTemplateNotSupported,
		"the topology controller did not patch %s; the last item of spec.patches of ClusterClass %s must be {name: %s, external: {%s}}",
		objects, class, contract.Name, intent.PatchLines())
}

// atMost joins names, the first few.
func atMost(names []string) string {
	if more := len(names) - maxMachines; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxMachines], ", "), more)
	}
	return strings.Join(names, ", ")
}

// topologyOf is the value of indexTopology.
func topologyOf(object client.Object) []string {
	template, ok := object.(*bootstrapv1.KubeadmConfigTemplate)
	if !ok || !plan.IsTopologyOwned(template.Labels) || !patch.IsPatched(patch.SpecOf(&template.Spec.Template.Spec)) {
		return nil
	}
	return labelIndex(clusterv1.ClusterNameLabel)(template)
}

// secretNames are the names under which proxy Secrets of a Cluster and of the pools of its topology are looked up.
func secretNames(object client.Object) []string {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	view, overrides := intent.ClusterOf(cluster), []string{""}
	if view.Topology {
		settings, _ := intent.TopologyOf(cluster) // what can be read of it
		view = settings.ApplyTo(view)
		for _, pool := range settings.Pools {
			if pool.HasOwnSecret() {
				overrides = append(overrides, pool.Override)
			}
		}
	}
	var names []string
	for _, override := range overrides {
		for _, candidate := range resolve.Candidates(view, override) {
			names = append(names, candidate.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
