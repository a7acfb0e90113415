package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// A KubeadmConfigTemplate can outlive its use: a pool got a new one, or it now serves a pool of another Cluster. It
// still has the entries of the Cluster that it was patched for, which is found by the generated Secret that the entries
// refer to and by the owner reference that Cluster API has set.

// indexPatchedFor finds patched KubeadmConfigTemplates by either of the two.
const indexPatchedFor = "patchedFor"

const (
	patchedForCluster = "cluster/"
	patchedForSecret  = "secret/"
)

// patchedFor are the values of indexPatchedFor.
func patchedFor(object client.Object) []string {
	template, ok := object.(*bootstrapv1.KubeadmConfigTemplate)
	if !ok {
		return nil
	}
	spec := patch.SpecOf(&template.Spec.Template.Spec)
	if !patch.IsPatched(spec) || plan.IsTopologyOwned(template.Labels) {
		return nil
	}
	var values []string
	for _, owner := range template.OwnerReferences {
		if owner.Kind == "Cluster" && strings.HasPrefix(owner.APIVersion, clusterv1.GroupVersion.Group+"/") {
			values = append(values, patchedForCluster+owner.Name)
		}
	}
	for _, name := range patch.References(spec) {
		values = append(values, patchedForSecret+name)
		if cluster := intent.GeneratedFor(name); cluster != "" { // the Secret may be gone, or never have been written
			values = append(values, patchedForCluster+cluster)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// clustersPatchedFor are the Clusters that a template was patched for.
func (c *Controller) clustersPatchedFor(ctx context.Context, template client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, value := range patchedFor(template) {
		name, isCluster := strings.CutPrefix(value, patchedForCluster)
		if !isCluster {
			secret := &corev1.Secret{}
			exists, err := c.get(ctx, template.GetNamespace(), strings.TrimPrefix(value, patchedForSecret), secret)
			if err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Reading generated Secret of KubeadmConfigTemplate")
			}
			if err != nil || !exists {
				continue
			}
			name = secret.Labels[contract.LabelGenerated]
		}
		requests = append(requests, requestFor(template.GetNamespace(), name)...)
	}
	return requests
}

// clustersOfPool are the Cluster of a pool, and those that its template was patched for.
func (c *Controller) clustersOfPool(ctx context.Context, object client.Object) []reconcile.Request {
	requests := clusterOfPool(ctx, object)
	pool := plan.PoolOf(object)
	if pool.Bootstrap.Kind != plan.KindTemplate {
		return requests
	}
	template := &bootstrapv1.KubeadmConfigTemplate{}
	exists, err := c.get(ctx, object.GetNamespace(), pool.Bootstrap.Name, template)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reading KubeadmConfigTemplate of MachineDeployment")
	}
	if err != nil || !exists {
		return requests
	}
	return append(requests, c.clustersPatchedFor(ctx, template)...)
}

// strays returns the templates that were patched for the Cluster and that no pool of it uses. secrets are its generated
// Secrets.
func (r *reconciliation) strays(ctx context.Context, objects []bootstrapObject, secrets []corev1.Secret) ([]bootstrapObject, error) {
	values := []string{patchedForCluster + r.view.Name, patchedForSecret + intent.GeneratedSecretName(r.view.Name)}
	for i := range secrets {
		if value := patchedForSecret + secrets[i].Name; !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	var strays []bootstrapObject
	for _, value := range values {
		var templates bootstrapv1.KubeadmConfigTemplateList
		if err := r.Client.List(ctx, &templates, client.InNamespace(r.view.Namespace), client.MatchingFields{indexPatchedFor: value},
			client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing KubeadmConfigTemplates: %w", err)
		}
		for i := range templates.Items {
			name := templates.Items[i].Name
			known := func(o bootstrapObject) bool { return o.kind == plan.KindTemplate && o.object.GetName() == name }
			if slices.ContainsFunc(objects, known) || slices.ContainsFunc(strays, known) {
				continue
			}
			template := templates.Items[i].DeepCopy()
			strays = append(strays, newObject(template, plan.KindTemplate, &template.Spec.Template.Spec, false))
		}
	}
	return strays, nil
}

// tidy takes our entries out of templates that have strayed to an unlabelled Cluster, and out of unused ones when the
// Cluster is not enabled any more. One that nobody uses may still serve an old MachineSet.
func (r *reconciliation) tidy(ctx context.Context, objects []bootstrapObject, options intent.Options) error {
	secrets, err := r.generated(ctx)
	if err != nil {
		return err
	}
	strays, err := r.strays(ctx, objects, secrets)
	if err != nil {
		return err
	}
	out := r.want(options)
	out.Enabled = false
	for i := range strays {
		stray := &strays[i]
		user, err := r.foreignUser(ctx, r.view, *stray)
		if err != nil {
			return err
		}
		theirs := false
		if user != nil {
			cluster := &clusterv1.Cluster{}
			exists, err := r.get(ctx, r.view.Namespace, user.Cluster, cluster)
			if err != nil {
				return err
			}
			theirs = exists && intent.StateOf(cluster.Labels) != intent.Disabled
		}
		if theirs || user == nil && r.view.Enabled {
			r.keepReferences(*stray)
			continue
		}
		if err := r.settle(ctx, stray, out, nil); err != nil {
			return err
		}
	}
	return nil
}

// generated returns the generated Secrets of the Cluster.
func (r *reconciliation) generated(ctx context.Context) ([]corev1.Secret, error) {
	var secrets corev1.SecretList
	if err := r.Client.List(ctx, &secrets, client.InNamespace(r.view.Namespace), client.MatchingFields{lookup.IndexLabel: r.view.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing generated Secrets: %w", err)
	}
	return secrets.Items, nil
}
