package world

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// ProxySecrets reads proxy Secrets in the place of the controller's cache of them: one by one, those with the label.
type ProxySecrets struct {
	// Reader reads any Secret.
	client.Reader
}

// Get implements client.Reader.
func (p ProxySecrets) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	options ...client.GetOption,
) error {
	if err := p.Reader.Get(ctx, key, into, options...); err != nil {
		return err //nolint:wrapcheck // it is the reader
	}
	if _, labelled := into.GetLabels()[contract.LabelProxySecret]; !labelled {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	return nil
}
