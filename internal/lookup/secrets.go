// Package lookup reads from the management cluster what controller, webhooks and topology hook need to know to decide.
package lookup

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/expiring"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// Secrets is the resolve.SecretReader of a management cluster.
type Secrets struct {
	// Watched reads from a cache of the Secrets with contract.LabelProxySecret.
	Watched client.Reader
	// Live reads all others from the API server, one by name and never a list.
	Live client.Reader
	// Absences remembers which did not exist; nil asks the API server each time.
	Absences *Absences
}

// absenceTime is for how long a missing Secret is not read again. It is shorter than the resync period, at which,
// according to the documentation, a Secret without the label is noticed.
const absenceTime = 10 * time.Second

// Absences knows Secrets that do not exist, or did not a moment ago. A new Cluster is reconciled a hundred times, and
// the first candidate for its proxy Secret mostly does not exist.
type Absences struct {
	// Now is the clock.
	Now func() time.Time
	// Names reads the metadata of Secrets from a cache of all that can be a proxy Secret or have the name of a
	// generated one; nil asks the API server for each name.
	Names client.Reader

	known expiring.Map[types.NamespacedName, struct{}]
}

// has reports whether a Secret does not exist, or did not a moment ago.
func (a *Absences) has(ctx context.Context, name types.NamespacedName) bool {
	if a == nil {
		return false
	}
	if a.Names != nil {
		return apierrors.IsNotFound(a.Names.Get(ctx, name, SecretMetadata()))
	}
	_, absent := a.known.Get(name, a.Now())
	return absent
}

// add remembers that a Secret does not exist.
func (a *Absences) add(name types.NamespacedName) {
	if a != nil {
		now := a.Now()
		a.known.Put(name, struct{}{}, now, now.Add(absenceTime))
	}
}

// forget notes that a Secret exists.
func (a *Absences) forget(name types.NamespacedName) {
	if a != nil {
		a.known.Delete(name)
	}
}

// SecretMetadata is the form in which Absences reads Secrets.
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
		if s.Absences.has(ctx, name) {
			return nil, nil //nolint:nilnil // the interface says so
		}
		err = s.Live.Get(ctx, name, secret)
	}
	switch {
	case apierrors.IsNotFound(err):
		s.Absences.add(name)
		return nil, nil //nolint:nilnil // the interface says so
	case err != nil:
		return nil, err
	}
	_, watched := secret.Labels[contract.LabelProxySecret] // also one that the cache does not show yet
	return &resolve.Secret{Name: name, Data: secret.Data, Watched: watched, Version: secret.ResourceVersion}, nil
}
