package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// sameSecret reports whether current has the values of desired. Labels and annotations of others are ignored.
func sameSecret(current, desired *corev1.Secret) bool {
	owned := IsOwned(current, desired.OwnerReferences[0].UID)
	_, warned := current.Annotations[contract.AnnotationWarnings]
	_, warns := desired.Annotations[contract.AnnotationWarnings]
	return owned && warned == warns && has(current.Labels, desired.Labels) &&
		has(current.Annotations, desired.Annotations) && maps.EqualFunc(current.Data, desired.Data, bytes.Equal)
}

// has reports whether all has the same values as some.
func has(all, some map[string]string) bool {
	for key, value := range some {
		if found, known := all[key]; !known || found != value {
			return false
		}
	}
	return true
}

// keepOthers keeps the labels and annotations of others that current has.
func keepOthers(current, desired *corev1.Secret) {
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
}

// contentChanged reports whether Machines whose bootstrap data was generated from current are behind desired. Manual
// edits of current do not count: the rendered content does.
func contentChanged(current, desired *corev1.Secret) bool {
	if hash, known := current.Data[contract.KeyContentHash]; known {
		return !bytes.Equal(hash, desired.Data[contract.KeyContentHash])
	}
	return !bytes.Equal(contentHash(current.Data), contentHash(desired.Data))
}

// contentHash is the hash of the values in a generated Secret that nodes read. It is kept in the data, because it is
// computed from a password. The script is not part of it: with a new version of the product no Machine must be behind.
func contentHash(data map[string][]byte) []byte {
	hash := sha256.New()
	for _, key := range []string{contract.KeyProxyEnv, contract.KeyTrustedCABundle} {
		sum := sha256.Sum256(data[key])
		hash.Write(sum[:])
	}
	return []byte(hex.EncodeToString(hash.Sum(nil)))
}

// nudge makes the bootstrap provider reconcile KubeadmConfigs that have waited for the Secret: its own retries back off
// to minutes.
func (s *Secrets) nudge(ctx context.Context, secret *corev1.Secret) error {
	configs, err := s.configs.List(ctx)
	if err != nil {
		return err
	}
	since, token := secret.CreationTimestamp.Time, string(secret.UID)
	if changed := ChangedAt(secret); !changed.IsZero() {
		since, token = changed, token+"/"+secret.Annotations[contract.AnnotationChangedAt]
	}
	for i := range configs {
		config := &configs[i]
		waits := config.Status.DataSecretName == "" && config.DeletionTimestamp.IsZero() &&
			!config.CreationTimestamp.After(since) && config.Annotations[contract.AnnotationNudge] != token
		if !waits || !refersTo(kinds.View(config), secret.Name) {
			continue
		}
		data, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{contract.AnnotationNudge: token}},
		})
		if err != nil {
			return fmt.Errorf("encoding annotation of KubeadmConfig %s: %w", klog.KObj(config), err)
		}
		ctrl.LoggerFrom(ctx).Info("Nudging KubeadmConfig that waits for the generated Secret", plan.KindConfig,
			klog.KObj(config))
		if err := s.writer.Client.Patch(ctx, config.DeepCopy(), client.RawPatch(types.MergePatchType, data),
			client.FieldOwner(contract.Name)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("nudging KubeadmConfig %s: %w", klog.KObj(config), err)
		}
	}
	return nil
}

func refersTo(spec patch.Spec, secret string) bool {
	return slices.Contains(patch.References(spec), secret)
}

// ChangedAt is when the content of a Secret last changed, or the zero time.
func (s *Secrets) ChangedAt(ctx context.Context, name string) (time.Time, error) {
	if name == "" {
		return time.Time{}, nil
	}
	secret, err := s.Read(ctx, name)
	if err != nil || secret == nil {
		return time.Time{}, err
	}
	return ChangedAt(secret), nil
}

// ChangedAt is contract.AnnotationChangedAt of a Secret, or the zero time if it is absent or not ours: then nobody is
// known to be behind.
func ChangedAt(secret *corev1.Secret) time.Time {
	text := secret.Annotations[contract.AnnotationChangedAt]
	if text == "" {
		return time.Time{}
	}
	changed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return changed
}

// laterThan returns now to the second, or the second after before if that is later: contract.AnnotationUpdatedAt says
// by this time alone which content a node has.
func laterThan(before, now time.Time) time.Time {
	now = now.UTC().Truncate(time.Second)
	if next := before.UTC().Add(time.Second); now.Before(next) {
		return next
	}
	return now
}
