package world

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// absentTime is for how long a missing proxy Secret is not read again: at rest, a Cluster that uses another candidate
// costs no request. One that gets contract.LabelProxySecret is in the cache at once.
const absentTime = time.Hour

// absentKey is what Memory.Known has of a proxy Secret that did not exist.
type absentKey types.NamespacedName

// SecretMetadata is the form in which Secrets are read whose content is not needed.
func SecretMetadata() *metav1.PartialObjectMetadata {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return secret
}

// ReadSecret implements settings.SecretReader.
func (m *Memory) ReadSecret(ctx context.Context, name types.NamespacedName) (*settings.Secret, error) {
	if m.Secrets != nil {
		return m.Secrets.ReadSecret(ctx, name)
	}
	secret := &corev1.Secret{}
	err := m.Cached.Get(ctx, name, secret, client.UnsafeDisableDeepCopy) // nobody changes what is read
	if apierrors.IsNotFound(err) {
		if m.isAbsent(name) {
			return nil, nil //nolint:nilnil // the interface says so
		}
		err = m.Live.Get(ctx, name, secret)
	}
	switch {
	case apierrors.IsNotFound(err):
		if m.Known != nil {
			m.Known.Set(absentKey(name), true, absentTime)
		}
		return nil, nil //nolint:nilnil // the interface says so
	case err != nil:
		return nil, err
	}
	_, watched := secret.Labels[contract.LabelProxySecret] // also one that the cache does not show yet
	return &settings.Secret{Name: name, Data: secret.Data, Watched: watched}, nil
}

func (m *Memory) isAbsent(name types.NamespacedName) bool {
	if m.Known == nil {
		return false
	}
	_, absent := m.Known.Get(absentKey(name))
	return absent
}
