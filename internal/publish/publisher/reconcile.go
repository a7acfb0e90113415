package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
)

// pass is one pass over one Cluster.
type pass struct {
	*Controller

	cluster *clusterv1.Cluster
	view    settings.Cluster
	request output.Request
	out     controller.Outcome
	// existing are the Secrets of outputs by name, as this pass has read or written them.
	existing map[string]*corev1.Secret
}

// Reconcile publishes the values of one Cluster, and takes back what it does not ask for any more.
func (c *Controller) Reconcile(ctx context.Context, cluster *clusterv1.Cluster) (ctrl.Result, error) {
	view := settings.ClusterOf(cluster)
	if !c.Scope.Has(view.Namespace, cluster.Labels) || view.Deleted || view.Paused ||
		settings.StateOf(cluster.Labels) == settings.Unclear {
		return ctrl.Result{}, nil
	}
	ctx = c.guarded.ForCluster(ctx, cluster)
	p := &pass{Controller: c, cluster: cluster, view: view}
	idle, err := p.run(ctx)
	contested, again := c.guarded.Contested(client.ObjectKeyFromObject(cluster))
	if err == nil && idle && len(contested) == 0 {
		return ctrl.Result{}, client.IgnoreNotFound(c.condition.Remove(ctx, cluster))
	}
	p.out.RequeueIn(again)
	return p.conclude(ctx, contested, err)
}

// conclude reports the result of the pass, or the error that ended it, in the condition.
func (p *pass) conclude(ctx context.Context, contested []finding.Finding, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		// Somebody wrote in between. The cache receives that write and enqueues this Cluster again.
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the cache after a write conflict")
		return ctrl.Result{}, nil
	}
	if err != nil {
		p.out.Findings = nil
		p.out.Add(contract.ReasonInternalError, "Please check controller logs for errors")
	}
	p.out.AddAll(contested...)
	condition := finding.ConditionWith(p.out.Findings, output.ReasonPublished, p.summary())
	changed, failed := p.condition.Set(ctx, p.cluster, condition)
	if changed {
		ctrl.LoggerFrom(ctx).Info("Reporting outputs", "status", condition.Status, "reason", condition.Reason, "message",
			condition.Message)
	}
	return ctrl.Result{RequeueAfter: p.out.RequeueAfter}, errors.Join(err, client.IgnoreNotFound(failed))
}

// summary names the outputs that are asked for.
func (p *pass) summary() string {
	names := make([]string, 0, len(p.request.Outputs))
	for _, o := range p.request.Outputs {
		names = append(names, o.String())
	}
	return strings.Join(names, ", ")
}

// run makes and carries out what the Cluster asks for. It is idle if nothing is asked for, and nothing left.
func (p *pass) run(ctx context.Context) (idle bool, err error) {
	if p.existing, err = p.outputs(ctx, p.cluster); err != nil {
		return false, err
	}
	result, err := p.make(ctx)
	if err != nil {
		return false, err
	}
	p.out.AddAll(result.Findings...)
	if err := p.annotate(ctx, result); err != nil {
		return false, err
	}
	var delivered []output.Secret
	for _, secret := range result.Secrets {
		if secret.Delivered != nil {
			delivered = append(delivered, secret)
		} else if err := p.writeSecret(ctx, secret); err != nil {
			return false, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.existing)) {
		if slices.ContainsFunc(result.Secrets, func(w output.Secret) bool { return w.Delivered == nil && w.Name == name }) {
			continue
		}
		if err := p.remove(ctx, p.existing[name]); err != nil {
			return false, err
		}
		delete(p.existing, name)
	}
	left, err := p.apply(ctx, delivered)
	return len(p.request.Outputs) == 0 && !left && len(p.existing) == 0 && len(p.out.Findings) == 0, err
}

// make makes what the Cluster asks for. As long as its values are not known, what is out stays.
func (p *pass) make(ctx context.Context) (result output.Result, err error) {
	if p.view.Enabled {
		if p.request, err = output.Read(p.view.Annotations); err != nil {
			p.out.AddAll(finding.Of(err)...)
			return p.kept(), nil
		}
	}
	if len(p.request.Outputs) == 0 {
		return output.Result{}, nil
	}
	resolution, err := p.resolve(ctx)
	if found := finding.Of(err); len(found) > 0 {
		p.out.AddAll(found...)
		return output.Kept(p.request, p.cluster.Name), nil
	}
	if err != nil {
		return output.Result{}, err
	}
	if !resolution.Complete {
		p.out.Add(contract.ReasonWaitingForEndpoint, "spec.controlPlaneEndpoint of Cluster %s/%s is not set yet; "+
			"publishing waits until it is set, because NO_PROXY must contain it", p.view.Namespace, p.view.Name)
		return output.Kept(p.request, p.cluster.Name), nil
	}
	version, err := p.version(ctx)
	if err != nil {
		return output.Result{}, err
	}
	return output.Of(p.request, output.Input{
		Cluster: p.cluster.Name, Namespace: p.cluster.Namespace, Secret: resolution.Secret.String(),
		Settings: resolution.Settings, NoProxy: resolution.NoProxy.Value,
		HasNodeNetwork: resolution.NoProxy.HasNodeNetwork, Version: version,
	})
}

// kept is the result while it is not known what the Cluster asks for: everything that exists stays as it is.
func (p *pass) kept() output.Result {
	result := output.Result{AnnotationsKept: true}
	if p.cluster.Annotations[output.AnnotationApplied] != "" {
		result.Secrets = output.KeptDelivered()
	}
	for _, name := range slices.Sorted(maps.Keys(p.existing)) {
		result.Secrets = append(result.Secrets, output.Secret{Name: name, Kept: true})
	}
	return result
}

// options are the choices of the Cluster. The error is for the user.
func (p *pass) options() (settings.Options, error) {
	asks, err := settings.Of(p.cluster)
	p.view = asks.ApplyTo(p.view)
	return asks.Options, err
}

// resolve composes the values for programs of any kind. Its errors are for the user.
func (p *pass) resolve(ctx context.Context) (settings.Resolution, error) {
	options, err := p.options()
	if err != nil {
		return settings.Resolution{}, err
	}
	return p.Memory.Resolve(ctx, settings.Resolver{Profile: noproxy.ProfileShell}, p.view, options, "")
}

// version returns the Kubernetes version that the whole control plane runs, or "" if it is not known.
func (p *pass) version(ctx context.Context) (string, error) {
	if p.view.ControlPlaneKind != plan.KindControlPlane {
		return "", nil
	}
	controlPlane := &controlplanev1.KubeadmControlPlane{}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.view.Namespace, Name: p.view.ControlPlaneName}, controlPlane)
	if err := client.IgnoreNotFound(err); err != nil {
		return "", fmt.Errorf("reading KubeadmControlPlane %s/%s: %w", p.view.Namespace, p.view.ControlPlaneName, err)
	}
	return versionOf(controlPlane), nil
}

// annotate writes the annotations of the Cluster.
func (p *pass) annotate(ctx context.Context, result output.Result) error {
	if result.AnnotationsKept {
		return nil
	}
	return p.change(ctx, "annotations", func(cluster *clusterv1.Cluster) {
		for _, key := range output.AnnotationKeys() {
			delete(cluster.Annotations, key)
		}
		if cluster.Annotations == nil {
			cluster.Annotations = map[string]string{}
		}
		maps.Copy(cluster.Annotations, result.Annotations)
	})
}

// change writes an edit of the Cluster's metadata, if it changes something. what names it for the log.
func (p *pass) change(ctx context.Context, what string, edit func(*clusterv1.Cluster)) error {
	changed := p.cluster.DeepCopy()
	edit(changed)
	if maps.Equal(changed.Annotations, p.cluster.Annotations) && maps.Equal(changed.Labels, p.cluster.Labels) {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Writing metadata of Cluster", "Cluster", klog.KObj(changed), "what", what)
	metadata := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: changed.Namespace, Name: changed.Name, Annotations: p.cluster.Annotations, Labels: p.cluster.Labels,
	}}
	before := client.MergeFrom(metadata.DeepCopy())
	// The UID, as part of the patch, prevents writing to a newer Cluster of the same name.
	metadata.UID, metadata.Annotations, metadata.Labels = changed.UID, changed.Annotations, changed.Labels
	if err := p.Client.Patch(ctx, metadata, before, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("writing %s of Cluster %s: %w", what, klog.KObj(changed), err)
	}
	p.cluster.Annotations, p.cluster.Labels = changed.Annotations, changed.Labels
	return nil
}
