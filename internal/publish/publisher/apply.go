package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

// labelManagedBy marks, with contract.LabelGenerated, every object that is applied.
const labelManagedBy = "app.kubernetes.io/managed-by"

// applied are the kinds and the names of the objects of outputs, in the order in which objects are deleted.
func applied() []remote.Kind {
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	kyverno := schema.GroupVersion{Group: "policies.kyverno.io", Version: "v1"}
	kind := func(kind schema.GroupVersionKind, names ...string) remote.Kind {
		return remote.Kind{GroupVersionKind: kind, Named: func(name string) bool { return slices.Contains(names, name) }}
	}
	const policy = "http-proxy-env." + contract.Domain
	return []remote.Kind{
		kind(admission.WithKind("MutatingAdmissionPolicyBinding"), policy),
		kind(admission.WithKind("MutatingAdmissionPolicy"), policy),
		kind(kyverno.WithKind("MutatingPolicy"), policy),
		kind(corev1.SchemeGroupVersion.WithKind("ConfigMap"), "http-proxy-env", "http-proxy-ca"),
		kind(corev1.SchemeGroupVersion.WithKind("Secret"), "kapp-controller-config"),
	}
}

// setOf returns what outputs want in the workload cluster of a Cluster, and a text that changes with what they keep.
func setOf(cluster string, wanted []output.Secret) (set remote.Set, kept string, err error) {
	set = remote.Set{
		Kinds: applied(), Failed: output.ReasonDeliveryFailed,
		Labels: map[string]string{labelManagedBy: contract.Name, contract.LabelGenerated: cluster},
		Keeps: func(object metav1.Object) bool {
			return slices.ContainsFunc(wanted, func(w output.Secret) bool {
				return w.Kept && object.GetLabels()[contract.LabelOutput] == string(w.Delivered.Name)
			})
		},
	}
	for _, secret := range wanted {
		kept += fmt.Sprintln(secret.Delivered, secret.Kept)
		all, err := secret.Objects()
		if err != nil {
			return set, "", err //nolint:wrapcheck // it says what it read
		}
		for _, content := range all {
			object := &unstructured.Unstructured{Object: content}
			labels := object.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[contract.LabelOutput] = string(secret.Delivered.Name)
			object.SetLabels(labels)
			isSame := func(o remote.Object) bool {
				return o.GetKind() == object.GetKind() && o.GetNamespace() == object.GetNamespace() &&
					o.GetName() == object.GetName()
			}
			if !slices.ContainsFunc(set.Objects, isSame) {
				set.Objects = append(set.Objects, remote.Object{Unstructured: object, Of: "output " + secret.Delivered.String()})
			}
		}
	}
	return set, kept, nil
}

// apply has the workload cluster brought to what is wanted there, and reports whether anything may be left in it. An
// annotation of the Cluster says so before the first object is applied, and until the last one is deleted.
func (p *pass) apply(ctx context.Context, wanted []output.Secret) (left bool, err error) {
	begins := slices.ContainsFunc(wanted, func(s output.Secret) bool { return !s.Kept })
	if !begins && p.cluster.Annotations[output.AnnotationApplied] == "" {
		return false, nil
	}
	if begins {
		if err := p.markApplied(ctx, true); err != nil {
			return true, err
		}
	}
	set, kept, err := setOf(p.cluster.Name, wanted)
	if err != nil {
		return true, err
	}
	out, left, err := p.Applier.Apply(ctx, p.cluster, p.guarded, set, kept)
	p.out.Join(out)
	if err != nil {
		return true, p.unreached(err, len(wanted) == 0)
	}
	if left {
		if len(wanted) == 0 {
			p.out.Add(output.ReasonWithdrawing, "what was applied to the workload cluster is being deleted")
		}
		return true, nil
	}
	return len(wanted) > 0, p.markApplied(ctx, len(wanted) > 0)
}

// unreached reports why the workload cluster was not reached, and returns any other error.
func (p *pass) unreached(err error, withdraws bool) error {
	if refused, ok := errors.AsType[*remote.RefusedError](err); ok {
		p.out.Add(output.ReasonDeliveryFailed, "%s", refused)
		p.out.RequeueIn(takenDelay)
		return nil
	}
	away, ok := errors.AsType[*remote.AwayError](err)
	if !ok {
		return err
	}
	reason := output.ReasonDelivering
	switch {
	case withdraws:
		reason = output.ReasonWithdrawing
	case away.Failed:
		reason = output.ReasonDeliveryFailed
	}
	p.out.Add(reason, "%s", away)
	p.out.RequeueIn(away.RequeueAfter)
	return nil
}

// markApplied writes or removes the annotation that says whether objects of the product may be in the workload cluster.
func (p *pass) markApplied(ctx context.Context, there bool) error {
	return p.change(ctx, "annotation "+output.AnnotationApplied, func(cluster *clusterv1.Cluster) {
		if delete(cluster.Annotations, output.AnnotationApplied); !there {
			return
		}
		if cluster.Annotations == nil {
			cluster.Annotations = map[string]string{}
		}
		cluster.Annotations[output.AnnotationApplied] = contract.AppliedValue
	})
}
