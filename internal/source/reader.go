package source

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterSecrets is the SecretReader of a management cluster.
type ClusterSecrets struct {
	// Watched reads from a cache of the Secrets with contract.LabelProxySecret.
	Watched client.Reader
	// Live reads all others from the API server, one by name and never a list.
	Live client.Reader
	// Absences remembers which did not exist; nil has every one asked for each time.
	Absences *Absences
}

// absenceTime is how long a Secret without the label that does not exist is not asked for again. Whoever creates one is
// told that it is noticed at the next resync, which is longer.
const absenceTime = 10 * time.Second

// Absences remembers Secrets that did not exist a moment ago. A Cluster that comes up is looked at a hundred times, and
// the first candidate for its proxy Secret mostly does not exist.
type Absences struct {
	// Now is the clock.
	Now func() time.Time

	mutex sync.Mutex
	until map[types.NamespacedName]time.Time
	swept time.Time
}

// has reports whether a Secret did not exist a moment ago.
func (a *Absences) has(name types.NamespacedName) bool {
	if a == nil {
		return false
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.Now().Before(a.until[name])
}

// add remembers that a Secret does not exist, and forgets what is too old.
func (a *Absences) add(name types.NamespacedName) {
	if a == nil {
		return
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	now := a.Now()
	if a.swept.Add(absenceTime).Before(now) {
		maps.DeleteFunc(a.until, func(_ types.NamespacedName, until time.Time) bool { return !now.Before(until) })
		a.swept = now
	}
	if a.until == nil {
		a.until = map[types.NamespacedName]time.Time{}
	}
	a.until[name] = now.Add(absenceTime)
}

// ReadSecret implements SecretReader.
func (s ClusterSecrets) ReadSecret(ctx context.Context, name types.NamespacedName) (*Secret, error) {
	secret := &corev1.Secret{}
	err := s.Watched.Get(ctx, name, secret)
	watched := err == nil
	if apierrors.IsNotFound(err) {
		if s.Absences.has(name) {
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
	return &Secret{Name: name, Data: secret.Data, Watched: watched}, nil
}
