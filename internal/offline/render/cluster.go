package render

import (
	"cmp"
	"errors"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// explainMembers reports which bootstrap objects of a Cluster that is to be patched are not patched.
func (r *renderer) explainMembers(cluster *manifest.Object, view settings.Cluster) {
	if r.KubeadmControlPlane(cluster) == nil && !view.Topology {
		switch kind, name := view.ControlPlaneKind, view.ControlPlaneName; {
		case kind == "":
		case kind == plan.KindControlPlane:
			r.warn(cluster, "%s %s is not in the input and is not patched", kind, name)
		case slices.ContainsFunc(r.Workers(cluster), clusters.IsControlPlane):
			r.warn(cluster, "%s %s is not a %s and its Machines are not patched", kind, name, plan.KindControlPlane)
		default:
			r.note(cluster, "%s %s is not a %s and is not patched; its Machines, if it has any, get no proxy", kind, name,
				plan.KindControlPlane)
		}
	}
	for _, worker := range r.Workers(cluster) {
		if r.Bootstrap(worker) == nil || plan.IsTopologyOwned(worker.Labels()) {
			r.explain(worker)
		}
	}
}

// explain reports why the bootstrap object of a worker is not patched.
func (r *renderer) explain(worker *manifest.Object) {
	pool := r.Pool(worker)
	want := pool.BootstrapKind()
	reference := pool.Bootstrap
	switch {
	case plan.IsTopologyOwned(worker.Labels()), !pool.UsesProxy():
	case reference.Name == "":
		r.note(worker, "has its own bootstrap data and is not patched")
	case reference.Kind != want:
		path := "spec.template.spec"
		if worker.Kind() == "Machine" {
			path = "spec"
		}
		r.warn(worker, "%s.bootstrap.configRef.kind: %s cannot be patched, only %s", path,
			cmp.Or(reference.Kind, "an empty kind"), want)
	case clusters.IsControlPlane(worker):
		r.warn(worker, "belongs to the control plane; %s %s is not patched, only a %s is", reference.Kind, reference.Name,
			plan.KindControlPlane)
	default:
		r.warn(worker, "%s %s is not in the input and is not patched", reference.Kind, reference.Name)
	}
}

// clusterRun is the state of one Cluster's run.
type clusterRun struct {
	*renderer

	object     *manifest.Object
	view       settings.Cluster
	options    settings.Options
	unresolved []finding.Place
}

// report reports settings of the Cluster or of a pool, and whether they can be used.
func (c *clusterRun) report(found clusters.Settings) (usable bool) {
	if note, is := clusters.NotKnown(found.Err); is && !c.IncludeSecrets {
		c.note(found.Object, "%s; new entries are those for a proxy URL", note)
		return true
	}
	if err := found.Err; err != nil {
		c.reject(found.Object, "%s", err)
		return false
	}
	if note := found.Resolution.Note(); note != "" {
		c.note(found.Object, "%s", note)
	}
	for _, warning := range found.Warnings {
		switch {
		case clusters.IsUnresolved(warning.Place, c.unresolved): // an unresolved variable has no value to warn about
		case noproxy.IsUsual(warning.Code):
			c.usual.add(warning.Code, c.object)
		default:
			c.warn(c.object, "%s", warning)
		}
	}
	return true
}

// carryOut carries out a decision about a bootstrap object and reports its findings.
func (c *clusterRun) carryOut(o clusters.Decided) {
	decision, object := o.Decision, cmp.Or(o.Object, c.object)
	for _, found := range decision.Findings {
		switch found.Reason {
		case contract.ReasonSharedTemplate, contract.ReasonNameTaken:
			c.reject(object, "%s", found)
		default:
			c.note(object, "%s", found)
		}
	}
	if conflict, ok := errors.AsType[*patch.ConflictError](decision.Refused); ok {
		for _, found := range conflict.Conflicts {
			found.Reason = contract.ReasonConflictingFile
			c.reject(object, "conflict: %s", o.InSpec(found))
		}
	} else if decision.Refused != nil {
		c.reject(object, "%s", decision.Refused)
	}
	for _, warning := range decision.Warnings {
		if warning.Code == patch.CodeUnread {
			c.note(object, "%s", o.InSpec(warning))
		} else {
			c.warn(object, "%s", o.InSpec(warning))
		}
	}
	for _, note := range decision.Notes {
		c.note(object, "%s", o.InSpec(note))
	}
	if version, changes := decision.Annotations[contract.AnnotationOutputVersion]; changes && o.Object != nil {
		c.apply(o.Object, o.Path, decision.Edits, version)
	}
	if decision.Secret != "" {
		c.generate(decision.Secret, decision.Resolution)
	}
}

// missingNetwork returns the missing fact about the network of a Cluster, or "".
func missingNetwork(unresolved []finding.Place, resolution settings.Resolution) string {
	switch {
	case resolution.Settings.IsTrustOnly(): // there is no NO_PROXY
		return ""
	case len(unresolved) > 0:
		return clusters.Unresolved(unresolved) + " has unresolved variables"
	case !resolution.Complete:
		return "spec.controlPlaneEndpoint is not set"
	}
	return ""
}
