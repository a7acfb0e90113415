package publisher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// kindSecret is the kind of every resource in our ClusterResourceSets.
const kindSecret = "Secret"

// isDelivered reports whether a Secret is for the workload cluster.
func isDelivered(secret *corev1.Secret) bool {
	return secret.Type == addonsv1.ClusterResourceSetSecretType
}

// set returns the ClusterResourceSet of the Cluster, nil if there is none of ours.
func (p *pass) set(ctx context.Context) (*addonsv1.ClusterResourceSet, error) {
	if !p.Deliver {
		return nil, nil //nolint:nilnil // none of ours
	}
	set := &addonsv1.ClusterResourceSet{}
	err := p.Client.Get(ctx, p.setKey(), set)
	if apierrors.IsNotFound(err) || err == nil && set.Labels[contract.LabelGenerated] != p.cluster.Name {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, fmt.Errorf("reading ClusterResourceSet %s: %w", p.setKey(), err)
	}
	return set, nil
}

func (p *pass) setKey() client.ObjectKey {
	return client.ObjectKey{Namespace: p.cluster.Namespace, Name: p.cluster.Name + contract.DeliverySuffix}
}

// isWithdrawn reports whether a Secret is not wanted any more, or holds an output with another argument.
func isWithdrawn(secret *corev1.Secret, wanted []publish.Secret) bool {
	o, known := publish.Delivered(secret.Annotations)
	i := slices.IndexFunc(wanted, func(w publish.Secret) bool { return w.Name == secret.Name })
	return i < 0 || known && (wanted[i].Delivered == nil || o != *wanted[i].Delivered)
}

// withdraw takes back an output, and reports whether its Secret can go: one for the workload cluster first gets content
// without effect, because Cluster API deletes nothing there, and waits until that is applied.
func (p *pass) withdraw(ctx context.Context, set *addonsv1.ClusterResourceSet, secret *corev1.Secret) (bool, error) {
	o, known := publish.Delivered(secret.Annotations)
	if !known || !isDelivered(secret) {
		return true, nil
	}
	content, err := publish.Withdraw(p.cluster.Name, o)
	if err != nil {
		return false, err
	}
	content.Labels = secret.Labels
	same := maps.EqualFunc(secret.Data, content.Data, bytes.Equal)
	switch {
	case !same && p.Deliver && set == nil:
		// Nothing has delivered it, unless the cache is behind.
		err := p.Live.Get(ctx, p.setKey(), &addonsv1.ClusterResourceSet{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading ClusterResourceSet %s: %w", p.setKey(), err)
		}
		fallthrough
	case !same:
		if err := p.update(ctx, secret, content); err != nil {
			return false, err
		}
	case !p.Deliver:
		p.out.Add(contract.ReasonDeliveryNotInstalled, "output %s: Secret %s has content without effect, and the manager "+
			"runs without --deliver; delete the Secret when that is applied to the workload cluster", o, klog.KObj(secret))
		return false, nil
	case set == nil:
		return true, nil
	}
	state, message, err := p.state(ctx, set, p.existing[secret.Name])
	switch {
	case err != nil:
		return false, err
	case state == applied:
		return true, nil
	case state == failed:
		p.out.Add(contract.ReasonDeliveryFailed, "output %s cannot be withdrawn: %s", o, message)
	default:
		p.out.Add(contract.ReasonWithdrawing, "output %s: Cluster API has not applied the empty Secret %s yet", o,
			klog.KObj(secret))
	}
	return false, nil
}

// deliver has the Secrets for the workload cluster delivered, and reports about those that are wanted.
func (p *pass) deliver(ctx context.Context, set *addonsv1.ClusterResourceSet, wanted []publish.Secret) error {
	var resources []addonsv1.ResourceRef
	for _, name := range slices.Sorted(maps.Keys(p.existing)) {
		if isDelivered(p.existing[name]) {
			resources = append(resources, addonsv1.ResourceRef{Kind: kindSecret, Name: name})
		}
	}
	if p.Deliver {
		if err := p.write(ctx, set, resources); err != nil {
			return err
		}
	}
	if len(resources) > 0 && p.Deliver || len(resources) == 0 && set == nil {
		if err := p.mark(ctx, len(resources) > 0); err != nil {
			return err
		}
	}
	for _, w := range wanted {
		secret := p.existing[w.Name]
		if secret == nil || w.Delivered == nil {
			continue
		}
		if isWithdrawn(secret, wanted) {
			continue
		}
		if err := p.report(ctx, set, secret, *w.Delivered); err != nil {
			return err
		}
	}
	return nil
}

// mark sets or removes the label by which the ClusterResourceSet selects the Cluster.
func (p *pass) mark(ctx context.Context, selected bool) error {
	return p.change(ctx, "labels", func(cluster *kinds.Cluster) {
		if delete(cluster.Labels, contract.LabelDeliverTo); !selected {
			return
		}
		if cluster.Labels == nil {
			cluster.Labels = map[string]string{}
		}
		cluster.Labels[contract.LabelDeliverTo] = cluster.Name
	})
}

// write brings the ClusterResourceSet to the resources, or deletes it if there are none.
func (p *pass) write(ctx context.Context, set *addonsv1.ClusterResourceSet, resources []addonsv1.ResourceRef) error {
	log := ctrl.LoggerFrom(ctx)
	switch {
	case set == nil && len(resources) == 0:
		return nil
	case set == nil:
		return p.createSet(ctx, resources)
	case !set.DeletionTimestamp.IsZero(): // its event brings the next pass
		return nil
	case len(resources) == 0:
		log.Info("Deleting ClusterResourceSet", "ClusterResourceSet", klog.KObj(set))
		if err := p.Client.Delete(ctx, set, client.Preconditions{UID: &set.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ClusterResourceSet %s: %w", klog.KObj(set), err)
		}
		return nil
	case slices.Equal(set.Spec.Resources, resources):
		return nil
	}
	next := set.DeepCopy()
	next.Spec.Resources = resources
	log.Info("Updating ClusterResourceSet", "ClusterResourceSet", klog.KObj(next))
	if err := p.Client.Update(ctx, next); err != nil {
		return fmt.Errorf("updating ClusterResourceSet %s: %w", klog.KObj(next), err)
	}
	return nil
}

// createSet creates the ClusterResourceSet, unless another has its name.
func (p *pass) createSet(ctx context.Context, resources []addonsv1.ResourceRef) error {
	set := &addonsv1.ClusterResourceSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.cluster.Namespace, Name: p.setKey().Name,
			Labels: map[string]string{
				clusterv1.ClusterNameLabel: p.cluster.Name, contract.LabelGenerated: p.cluster.Name,
			},
			OwnerReferences: []metav1.OwnerReference{p.owner()},
		},
		Spec: addonsv1.ClusterResourceSetSpec{
			ClusterSelector: metav1.LabelSelector{MatchLabels: map[string]string{contract.LabelDeliverTo: p.cluster.Name}},
			Strategy:        string(addonsv1.ClusterResourceSetStrategyReconcile),
			Resources:       resources,
		},
	}
	current := &addonsv1.ClusterResourceSet{}
	switch err := p.Live.Get(ctx, p.setKey(), current); {
	case err == nil && current.Labels[contract.LabelGenerated] == p.cluster.Name:
		return reconcile.CacheBehind("ClusterResourceSet", current)
	case err == nil:
		p.taken("ClusterResourceSet", set.Name)
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading ClusterResourceSet %s: %w", p.setKey(), err)
	}
	ctrl.LoggerFrom(ctx).Info("Creating ClusterResourceSet", "ClusterResourceSet", klog.KObj(set))
	if err := p.Client.Create(ctx, set); err != nil {
		return fmt.Errorf("creating ClusterResourceSet %s: %w", klog.KObj(set), err)
	}
	return nil
}

// report reports an output that is not in the workload cluster yet.
func (p *pass) report(ctx context.Context, set *addonsv1.ClusterResourceSet, secret *corev1.Secret,
	o publish.Output,
) error {
	if !p.Deliver {
		p.out.Add(contract.ReasonDeliveryNotInstalled, "output %s: Secret %s is written, and the manager runs without "+
			"--deliver; add it, or have another tool apply key %s.yaml", o, klog.KObj(secret), o.Name)
		return nil
	}
	switch state, message, err := p.state(ctx, set, secret); {
	case err != nil:
		return err
	case state == failed:
		p.out.Add(contract.ReasonDeliveryFailed, "output %s: %s", o, message)
	case state == pending:
		p.out.Add(contract.ReasonDelivering, "output %s: Cluster API has not applied Secret %s yet", o, klog.KObj(secret))
	}
	return nil
}

// state is how far Cluster API has brought the content of a Secret.
type state int

const (
	pending state = iota
	applied
	failed
)

// state returns how far Cluster API has brought the content of a Secret, and what it says if it failed: its message,
// and not the errors in its log, which may quote what is applied.
func (p *pass) state(ctx context.Context, set *addonsv1.ClusterResourceSet, secret *corev1.Secret) (
	reached state, why string, err error,
) {
	binding := &addonsv1.ClusterResourceSetBinding{}
	err = p.Client.Get(ctx, client.ObjectKeyFromObject(p.cluster), binding)
	if apierrors.IsNotFound(err) || set == nil {
		return pending, "", nil
	}
	if err != nil {
		return pending, "", fmt.Errorf("reading ClusterResourceSetBinding %s: %w", klog.KObj(p.cluster), err)
	}
	for _, one := range binding.Spec.Bindings {
		known := one.GetResource(addonsv1.ResourceRef{Kind: kindSecret, Name: secret.Name})
		switch {
		case one.ClusterResourceSetName != set.Name || known == nil || known.Hash != hashOf(secret.Data):
		case known.Applied != nil && *known.Applied:
			return applied, "", nil
		default:
			message := "Cluster API could not apply Secret " + klog.KObj(secret).String()
			if said := meta.FindStatusCondition(set.Status.Conditions,
				addonsv1.ClusterResourceSetResourcesAppliedCondition); said != nil && said.Message != "" {
				message += ": " + said.Message
			}
			return failed, message, nil
		}
	}
	return pending, "", nil
}

// hashOf is the hash that Cluster API records when it has applied a Secret.
func hashOf(data map[string][]byte) string {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		hash.Write(data[key])
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}
