package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// deletable are the kinds of applied objects, in the order in which they are deleted.
func deletable() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicyBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"},
		{Group: "policies.kyverno.io", Version: "v1", Kind: "MutatingPolicy"},
		ofCore("ConfigMap"),
		ofCore(kindSecret),
		ofCore(kindNamespace),
	}
}

func (p *application) isMissing(ctx context.Context, namespace string) bool {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(ofCore(kindNamespace))
	return apierrors.IsNotFound(p.Get(ctx, client.ObjectKey{Name: namespace}, object))
}

// clean deletes our objects that are not wanted any more. An earlier version of files stays as long as a Node has its
// label, unless no files are wanted: then the labels go first.
func (p *application) clean(ctx context.Context) error {
	used, err := p.used(ctx)
	if err != nil {
		return err
	}
	for _, kind := range deletable() {
		for i := range p.existing[kind] {
			object := &p.existing[kind][i]
			switch version := object.Labels[contract.LabelNodeFiles]; {
			case p.wants(object), p.keeps(object):
				p.left = true
				continue
			case version != "" && used[version]:
				p.later(time.Minute)
				continue
			}
			p.later(cleanDelay)
			if err := p.remove(ctx, object); err != nil {
				return err
			}
		}
	}
	if p.incomplete && len(p.wanted) == 0 {
		p.out.Add(contract.ReasonWithdrawing, "what was applied to the workload cluster is being deleted")
	}
	return nil
}

// remove deletes an object, if that has not begun.
func (p *application) remove(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	if !object.DeletionTimestamp.IsZero() {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting object of the workload cluster", object.Kind, klog.KObj(object))
	err := p.Delete(ctx, object, client.Preconditions{UID: &object.UID},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", object.Kind, klog.KObj(object), err)
	}
	return nil
}

// used returns the versions of files that Nodes have the label of. If no files are wanted, it removes the labels.
func (p *application) used(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	if len(p.existing[ofCore(kindNamespace)]) == 0 {
		return used, nil // nothing of nodes has been there
	}
	labelled, err := metadata(ctx, p, ofCore("Node"), client.HasLabels{contract.LabelNodeFiles})
	if err != nil {
		return nil, err
	}
	wanted := slices.ContainsFunc(p.wanted, func(w publish.Secret) bool { return w.Delivered.Name == publish.Nodes })
	for i := range labelled {
		if wanted {
			used[labelled[i].Labels[contract.LabelNodeFiles]] = true
			continue
		}
		labelled[i].SetResourceVersion("") // whatever it has
		if err := client.IgnoreNotFound(Label(ctx, p, &labelled[i], "")); err != nil {
			return nil, err
		}
	}
	return used, nil
}
