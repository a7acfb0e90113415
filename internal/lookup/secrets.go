// Package lookup reads facts for decisions of controller, webhooks and topology hook from the management cluster.
package lookup

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// Secrets is the resolve.SecretReader of a management cluster.
type Secrets struct {
	// Watched reads from a cache of the Secrets with contract.LabelProxySecret.
	Watched client.Reader
	// Live reads all others from the API server, one by name and never a list.
	Live client.Reader
	// Absent remembers which did not exist, by namespace/name; nil asks the API server each time.
	Absent *cache.Expiring
}

// absentTime is for how long a missing proxy Secret is not read again: at rest, a Cluster that uses another candidate
// costs no request. One that gets contract.LabelProxySecret is in the cache at once.
const absentTime = time.Hour

// SecretMetadata is the form in which Secrets are read whose content is not needed.
func SecretMetadata() *metav1.PartialObjectMetadata {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return secret
}

// ReadSecret implements resolve.SecretReader.
func (s Secrets) ReadSecret(ctx context.Context, name types.NamespacedName) (*resolve.Secret, error) {
	secret := &corev1.Secret{}
	err := s.Watched.Get(ctx, name, secret, client.UnsafeDisableDeepCopy) // nobody changes what is read
	if apierrors.IsNotFound(err) {
		if s.isAbsent(name) {
			return nil, nil //nolint:nilnil // the interface says so
		}
		err = s.Live.Get(ctx, name, secret)
	}
	switch {
	case apierrors.IsNotFound(err):
		if s.Absent != nil {
			s.Absent.Set(name.String(), true, absentTime)
		}
		return nil, nil //nolint:nilnil // the interface says so
	case err != nil:
		return nil, err
	}
	_, watched := secret.Labels[contract.LabelProxySecret] // also one that the cache does not show yet
	return &resolve.Secret{Name: name, Data: secret.Data, Watched: watched, Version: secret.ResourceVersion}, nil
}

func (s Secrets) isAbsent(name types.NamespacedName) bool {
	if s.Absent == nil {
		return false
	}
	_, absent := s.Absent.Get(name.String())
	return absent
}

// Forget has missing Secrets read again: the candidates for a Cluster that none of them serves.
func (s Secrets) Forget(names ...types.NamespacedName) {
	if s.Absent == nil {
		return
	}
	for _, name := range names {
		s.Absent.Delete(name.String())
	}
}
