package publisher

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
)

// writeSecret writes a Secret that is wanted.
func (p *pass) writeSecret(ctx context.Context, wanted output.Secret) error {
	if wanted.Kept {
		return nil
	}
	current := p.existing[wanted.Name]
	if current == nil {
		return p.create(ctx, wanted)
	}
	return p.update(ctx, current, wanted)
}

// desired is the Secret that a wanted one is written as.
func (p *pass) desired(wanted output.Secret) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.cluster.Namespace, Name: wanted.Name, Labels: settings.SecretLabels(p.view),
			OwnerReferences: []metav1.OwnerReference{p.owner()},
		},
		Type: corev1.SecretTypeOpaque, Data: wanted.Data,
	}
	maps.Copy(secret.Labels, wanted.Labels)
	secret.Labels[contract.LabelOutput] = wanted.Output
	return secret
}

// owner is the reference by which the objects of a Cluster are deleted with it, and moved.
func (p *pass) owner() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: p.cluster.Name, UID: p.cluster.UID,
	}
}

// owns reports whether a Secret was written for the Cluster, and the cache shows it.
func (p *pass) owns(secret client.Object, output string) bool {
	labels := secret.GetLabels()
	_, shown := labels[contract.LabelProxySecret]
	return shown && labels[contract.LabelGenerated] == p.cluster.Name && labels[contract.LabelOutput] == output
}

// takenDelay is when to check again for an object that another made under a name of an output, which is not watched.
const takenDelay = time.Minute

// takenKey is what Memory.Known has of such an object until then.
type takenKey client.ObjectKey

// taken reports that another made an object of that name.
func (p *pass) taken(kind, name string) {
	p.out.Add(contract.ReasonNameTaken, "%s %s/%s exists and was not written by %s for this Cluster; delete or rename it",
		kind, p.cluster.Namespace, name, contract.Name)
	p.out.RequeueIn(takenDelay)
}

// create creates a Secret, unless another has its name.
func (p *pass) create(ctx context.Context, wanted output.Secret) error {
	desired := p.desired(wanted)
	key := client.ObjectKeyFromObject(desired)
	switch err := p.Client.Get(ctx, key, &corev1.Secret{}); {
	case err == nil: // of another Cluster
		p.taken("Secret", wanted.Name)
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading Secret %s: %w", key, err)
	}
	if p.isKnownTaken(key) {
		p.taken("Secret", wanted.Name)
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Creating Secret of outputs", "Secret", klog.KObj(desired))
	err := p.Client.Create(ctx, desired)
	if apierrors.IsAlreadyExists(err) { // the cache is behind, or does not have it
		current := world.SecretMetadata()
		if err := p.Live.Get(ctx, key, current); err != nil {
			return fmt.Errorf("reading metadata of Secret %s: %w", key, client.IgnoreNotFound(err))
		}
		if p.owns(current, wanted.Output) {
			return controller.CacheBehind("Secret", current)
		}
		if p.Memory.Known != nil {
			p.Memory.Known.Set(takenKey(key), true, takenDelay)
		}
		p.taken("Secret", wanted.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating Secret %s: %w", key, err)
	}
	if desired.UID != "" { // else the write is contested
		p.existing[desired.Name] = desired
	}
	return nil
}

// update writes the content of a Secret if it differs. Labels, annotations and owners of others stay. One that cannot
// be changed is deleted; its event brings the pass that creates it again.
func (p *pass) update(ctx context.Context, current *corev1.Secret, wanted output.Secret) error {
	desired, next := p.desired(wanted), current.DeepCopy()
	next.Data = desired.Data
	maps.Copy(next.Labels, desired.Labels)
	if !controller.IsOwned(current, p.cluster.UID) {
		next.OwnerReferences = append(next.OwnerReferences, desired.OwnerReferences...)
	}
	if maps.EqualFunc(current.Data, next.Data, bytes.Equal) && maps.Equal(current.Labels, next.Labels) &&
		len(current.OwnerReferences) == len(next.OwnerReferences) &&
		current.Type == desired.Type {
		return nil
	}
	if ptr.Deref(current.Immutable, false) || current.Type != desired.Type {
		return p.remove(ctx, current)
	}
	ctrl.LoggerFrom(ctx).Info("Updating Secret of outputs", "Secret", klog.KObj(next))
	if err := p.Client.Update(ctx, next); err != nil {
		return fmt.Errorf("updating Secret %s: %w", klog.KObj(next), err)
	}
	p.existing[next.Name] = next
	return nil
}

// remove deletes a Secret, if the Cluster owns it.
func (p *pass) remove(ctx context.Context, secret *corev1.Secret) error {
	if !controller.IsOwned(secret, p.cluster.UID) {
		return nil
	}
	if err := controller.CheckCurrent(ctx, p.Live, p.cluster); err != nil {
		return err //nolint:wrapcheck // it says what it read
	}
	ctrl.LoggerFrom(ctx).Info("Deleting Secret of outputs", "Secret", klog.KObj(secret))
	err := p.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret %s: %w", klog.KObj(secret), err)
	}
	return nil
}

// isKnownTaken reports whether the name of a Secret was taken lately. A Memory that knows nothing is asked each time.
func (p *pass) isKnownTaken(key client.ObjectKey) bool {
	if p.Memory.Known == nil {
		return false
	}
	_, taken := p.Memory.Known.Get(takenKey(key))
	return taken
}
