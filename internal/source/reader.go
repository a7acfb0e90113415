package source

import (
	"context"

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
}

// ReadSecret implements SecretReader.
func (s ClusterSecrets) ReadSecret(ctx context.Context, name types.NamespacedName) (*Secret, error) {
	secret := &corev1.Secret{}
	err := s.Watched.Get(ctx, name, secret)
	watched := err == nil
	if apierrors.IsNotFound(err) {
		err = s.Live.Get(ctx, name, secret)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // the interface says so
	case err != nil:
		return nil, err
	}
	return &Secret{Name: name, Data: secret.Data, Watched: watched}, nil
}
