package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// ensureSecret writes the generated Secret if its content differs. It is not created before the settings are
// complete, so that no bootstrap data is made of incomplete ones.
func (r *reconciliation) ensureSecret(ctx context.Context, name string, resolution resolve.Resolution) error {
	err := r.writeSecret(ctx, name, resolution)
	if found := finding.Of(err); len(found) > 0 {
		r.found = append(r.found, found...)
		return nil // the Secret stays as it is
	}
	return err
}

func (r *reconciliation) writeSecret(ctx context.Context, name string, resolution resolve.Resolution) error {
	r.needed[name] = true
	if r.ensured[name] {
		return nil // for another object of this pass; the cache may not show it yet
	}
	if r.ensured == nil {
		r.ensured = map[string]bool{}
	}
	r.ensured[name] = true
	current := &corev1.Secret{}
	exists, err := r.get(ctx, r.view.Namespace, name, current)
	if err != nil {
		return err
	}
	if r.adopted != nil && r.adopted.Name == name {
		current, exists = r.adopted, true // this pass has written it
	}
	if !resolution.Complete {
		return nil
	}
	desired, err := r.generatedSecret(name, resolution, current.Data[contract.KeyAdoptedFiles])
	if err != nil {
		return err
	}
	contest, sum := contestKey{secret: client.ObjectKeyFromObject(desired)}, digestOfSecret(desired)
	same := exists && sameSecret(current, desired)
	if same {
		sum = digest{}
	}
	if r.contested("Secret "+contest.secret.String(), contest, sum) {
		return nil
	}
	switch {
	case !exists:
		ctrl.LoggerFrom(ctx).Info("Creating generated Secret", "Secret", klog.KObj(desired))
		err := r.Client.Create(ctx, desired)
		if apierrors.IsAlreadyExists(err) {
			// The cache is behind, or somebody else was faster. A Secret of ours comes with the cache.
			why, err := r.names().TakenLive(ctx, client.ObjectKeyFromObject(desired), r.view.Name)
			r.refuse(name, why)
			return err
		}
		if err != nil {
			return fmt.Errorf("creating Secret %s: %w", klog.KObj(desired), err)
		}
		r.contests.wrote(contest, sum, r.Now(), "")
		current = desired
	case current.Labels[contract.LabelGenerated] != r.view.Name:
		return stale("Secret", current) // it was when the name was checked
	case !same:
		if contentChanged(current, desired) {
			desired.Annotations[contract.AnnotationChangedAt] = r.now()
		}
		ctrl.LoggerFrom(ctx).Info("Updating generated Secret", "Secret", klog.KObj(desired))
		if err := r.replaceSecret(ctx, current, desired); err != nil {
			return err
		}
		r.contests.wrote(contest, sum, r.Now(), "")
		current = desired
	}
	return r.nudge(ctx, current)
}

// followReferences keeps the Secrets up to date that an object still refers to by a name of an earlier program.
func (r *reconciliation) followReferences(ctx context.Context, o bootstrapObject, resolution resolve.Resolution) error {
	owners, err := r.generatedFor(ctx, o.spec)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if owners[name] != r.view.Name || r.ensured[name] {
			continue
		}
		if err := r.ensureSecret(ctx, name, resolution); err != nil {
			return err
		}
	}
	return nil
}

// replaceSecret brings a generated Secret to desired. One that somebody has made immutable is deleted and made anew, unless
// it goes on holding originals: a process that ends in between would lose them.
func (r *reconciliation) replaceSecret(ctx context.Context, current, desired *corev1.Secret) error {
	if current.Immutable == nil || !*current.Immutable {
		desired.ResourceVersion = current.ResourceVersion
		if err := r.Client.Update(ctx, desired); err != nil {
			return fmt.Errorf("updating Secret %s: %w", klog.KObj(desired), err)
		}
		return nil
	}
	if current.Data[contract.KeyAdoptedFiles] != nil && desired.Data[contract.KeyAdoptedFiles] != nil {
		return invalid("Secret %s is immutable, so it cannot follow its sources, and holds originals of adopted files; "+
			"save it, delete it and recreate it without the field immutable", klog.KObj(current))
	}
	if err := r.Client.Delete(ctx, current, client.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret %s: %w", klog.KObj(current), err)
	}
	desired.UID, desired.ResourceVersion, desired.Immutable = "", "", nil
	if err := r.Client.Create(ctx, desired); err != nil {
		return fmt.Errorf("creating Secret %s: %w", klog.KObj(desired), err)
	}
	return nil
}

// generatedSecret renders the Secret that files of bootstrap objects refer to. originals are what is kept in it of adopted
// files.
func (r *reconciliation) generatedSecret(name string, resolution resolve.Resolution, originals []byte) (*corev1.Secret, error) {
	data, err := resolve.SecretData(resolution, len(originals))
	if err != nil {
		return nil, err
	}
	if originals != nil {
		data[contract.KeyAdoptedFiles] = originals
	}
	data[contract.KeyContentHash] = contentHash(data)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.view.Namespace, Name: name,
			Labels:          intent.SecretLabels(r.view),
			Annotations:     resolve.SecretAnnotations(resolution),
			OwnerReferences: r.ownerReferences(),
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}, nil
}

// ownerReferences are those of every generated Secret.
func (r *reconciliation) ownerReferences() []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: r.cluster.Name, UID: r.cluster.UID,
	}}
}

// digestOfSecret is the digest of what the product writes into a generated Secret, which is the same on each write as
// long as the settings are.
func digestOfSecret(secret *corev1.Secret) digest {
	return digestOf([]any{secret.Data, secret.Labels, secret.Annotations})
}

// sameSecret reports whether current has what desired sets. Labels and annotations of others are left in peace.
func sameSecret(current, desired *corev1.Secret) bool {
	for key, value := range current.Labels {
		if _, ours := desired.Labels[key]; !ours {
			desired.Labels[key] = value
		}
	}
	for key, value := range current.Annotations {
		if _, ours := desired.Annotations[key]; !ours && key != contract.AnnotationWarnings {
			desired.Annotations[key] = value
		}
	}
	owned := false
	for _, reference := range current.OwnerReferences {
		owned = owned || reference.UID == desired.OwnerReferences[0].UID
	}
	return owned && reflect.DeepEqual(current.Data, desired.Data) &&
		maps.Equal(current.Labels, desired.Labels) && maps.Equal(current.Annotations, desired.Annotations)
}

// contentChanged reports whether Machines whose bootstrap data was made of current are behind desired. Whoever edited
// current by hand has changed nothing: it is what was rendered that counts.
func contentChanged(current, desired *corev1.Secret) bool {
	if hash, known := current.Data[contract.KeyContentHash]; known {
		return !bytes.Equal(hash, desired.Data[contract.KeyContentHash])
	}
	return !bytes.Equal(contentHash(current.Data), contentHash(desired.Data))
}

// contentHash is the hash of the values in a generated Secret that nodes read. It is kept among the data, because it is
// made of a password. The script is not part of it: a new version of the product must not put Machines behind.
func contentHash(data map[string][]byte) []byte {
	hash := sha256.New()
	for _, key := range []string{contract.KeyProxyEnv, contract.KeyTrustedCABundle} {
		sum := sha256.Sum256(data[key])
		hash.Write(sum[:])
	}
	return []byte(hex.EncodeToString(hash.Sum(nil)))
}

// nudge makes the bootstrap provider look again at KubeadmConfigs that have waited for the Secret: by itself it
// comes back only after a back-off that grows to minutes.
func (r *reconciliation) nudge(ctx context.Context, secret *corev1.Secret) error {
	configs, err := r.configs(ctx)
	if err != nil {
		return err
	}
	since, token := secret.CreationTimestamp.Time, string(secret.UID)
	if changed, err := time.Parse(time.RFC3339, secret.Annotations[contract.AnnotationChangedAt]); err == nil {
		since, token = changed, token+"/"+secret.Annotations[contract.AnnotationChangedAt]
	}
	for i := range configs {
		config := &configs[i]
		waits := config.Status.DataSecretName == "" && config.DeletionTimestamp.IsZero() &&
			!config.CreationTimestamp.After(since) && config.Annotations[contract.AnnotationNudge] != token
		if !waits || !refersTo(patch.SpecOf(&config.Spec), secret.Name) {
			continue
		}
		before := config
		config = config.DeepCopy()
		if config.Annotations == nil {
			config.Annotations = map[string]string{}
		}
		config.Annotations[contract.AnnotationNudge] = token
		ctrl.LoggerFrom(ctx).Info("Nudging KubeadmConfig that waits for the generated Secret", plan.KindConfig, klog.KObj(config))
		if err := r.Client.Patch(ctx, config, client.MergeFrom(before), client.FieldOwner(contract.Name)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("nudging KubeadmConfig %s: %w", klog.KObj(config), err)
		}
	}
	return nil
}

// generatedFor returns which Clusters the Secrets that managed files of spec come from were generated for, as far as the
// cache knows.
func (r *reconciliation) generatedFor(ctx context.Context, spec patch.Spec) (map[string]string, error) {
	labels := map[string]string{}
	for _, name := range patch.References(spec) {
		secret := &corev1.Secret{}
		if _, err := r.get(ctx, r.view.Namespace, name, secret); err != nil {
			return nil, err
		}
		labels[name] = secret.Labels[contract.LabelGenerated]
	}
	return labels, nil
}

func refersTo(spec patch.Spec, secret string) bool {
	return slices.Contains(patch.References(spec), secret)
}

// keepReferences keeps the generated Secrets that o refers to.
func (r *reconciliation) keepReferences(o bootstrapObject) {
	for _, name := range patch.References(o.spec) {
		r.needed[name] = true
	}
}

// leftOver reports whether a Cluster that is done with has a Secret of this controller, or an object that is held back: one
// that the cache did not show yet when the Cluster was disabled, that a process made with its last breath, or that a webhook
// did which had not heard. What render has made belongs to its user.
func (c *Controller) leftOver(ctx context.Context, cluster intent.Cluster) (bool, error) {
	var secrets corev1.SecretList
	if err := c.Client.List(ctx, &secrets, client.InNamespace(cluster.Namespace), client.MatchingFields{lookup.IndexLabel: cluster.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing generated Secrets: %w", err)
	}
	if slices.ContainsFunc(secrets.Items, func(s corev1.Secret) bool {
		_, written := s.Data[contract.KeyContentHash]
		_, adopted := s.Data[contract.KeyAdoptedFiles]
		return written || adopted
	}) {
		return true, nil
	}
	return c.hasPaused(ctx, cluster)
}

// cleanSecrets deletes the generated Secrets of the Cluster that no bootstrap object refers to.
func (r *reconciliation) cleanSecrets(ctx context.Context, objects []bootstrapObject) error {
	secrets, err := r.generated(ctx)
	if err != nil || len(secrets) == 0 {
		return err
	}
	configs, err := r.configs(ctx)
	if err != nil {
		return err
	}
	for i := range configs {
		if configs[i].Status.DataSecretName == "" { // its bootstrap data is still to be made
			for _, name := range patch.References(patch.SpecOf(&configs[i].Spec)) {
				r.needed[name] = true
			}
		}
	}
	if err := r.settleAdopted(ctx, objects); err != nil {
		return err
	}
	for i := range secrets {
		secret := &secrets[i]
		if r.needed[secret.Name] {
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Deleting generated Secret that nothing refers to", "Secret", klog.KObj(secret))
		if err := r.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Secret %s: %w", klog.KObj(secret), err)
		}
	}
	return nil
}
