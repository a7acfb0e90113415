package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/klog/v2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// hasPaused reports whether this product has paused an object of the Cluster.
func (c *Controller) hasPaused(ctx context.Context, cluster intent.Cluster) (bool, error) {
	if cluster.ControlPlaneKind == plan.KindControlPlane {
		controlPlane := &controlplanev1.KubeadmControlPlane{}
		if exists, err := c.get(ctx, cluster.Namespace, cluster.ControlPlaneName, controlPlane); err != nil || exists && plan.IsPausedByUs(controlPlane.Annotations) {
			return err == nil, err
		}
	}
	configs, err := c.configsOf(ctx, cluster)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(configs.Items, func(config bootstrapv1.KubeadmConfig) bool { return plan.IsPausedByUs(config.Annotations) }), nil
}

// reportPaused names the objects that this product has paused.
func (r *reconciliation) reportPaused(objects []bootstrapObject) {
	for _, o := range objects {
		if o.object.GetAnnotations()[clusterv1.PausedAnnotation] == contract.PausedForEndpoint {
			r.found.note("%s is paused by annotation %s until delivery %s can write the complete NO_PROXY",
				o, clusterv1.PausedAnnotation, contract.DeliveryInline)
		}
	}
}

// releaseDeleted lets Cluster API delete a control plane that this product has paused.
func (c *Controller) releaseDeleted(ctx context.Context, cluster intent.Cluster) error {
	if cluster.ControlPlaneKind != plan.KindControlPlane {
		return nil
	}
	controlPlane := &controlplanev1.KubeadmControlPlane{}
	exists, err := c.get(ctx, cluster.Namespace, cluster.ControlPlaneName, controlPlane)
	if err != nil || !exists || !plan.IsPausedByUs(controlPlane.Annotations) {
		return err
	}
	return c.annotate(ctx, controlPlane, map[string]string{clusterv1.PausedAnnotation: ""})
}

// annotate gives annotations of an object their values and takes those with an empty value away.
func (c *Controller) annotate(ctx context.Context, object client.Object, want map[string]string) error {
	operations := append([]patch.Operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: object.GetResourceVersion()}},
		plan.AnnotationOperations(object.GetAnnotations(), want)...)
	data, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding annotations of %s: %w", klog.KObj(object), err)
	}
	ctrl.LoggerFrom(ctx).Info("Annotating object", "object", klog.KObj(object))
	if err := c.patchJSON(ctx, object, data); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating %s: %w", klog.KObj(object), err)
	}
	return nil
}
