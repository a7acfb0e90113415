package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
)

// readersAtOnce is how many objects are read at the same time.
const readersAtOnce = 10

// prove reads the Secrets and Leases that rows have used, each once, and compares.
func (s statusReader) prove(ctx context.Context, rows []status.Row) error {
	present := status.Present{Secrets: map[string]status.Secret{}, Leases: map[string]status.Lease{}}
	for i := range rows {
		secrets, lease := rows[i].Uses()
		for _, name := range secrets {
			present.Secrets[name] = status.Secret{}
		}
		present.Leases[lease] = status.Lease{}
	}
	delete(present.Leases, "")
	var mutex sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readersAtOnce)
	secrets, leases := present.Secrets, present.Leases
	present.Secrets, present.Leases = map[string]status.Secret{}, map[string]status.Lease{}
	for name := range secrets {
		group.Go(func() error {
			secret, err := s.secret(groupCtx, name)
			mutex.Lock()
			defer mutex.Unlock()
			present.Secrets[name] = secret
			return err
		})
	}
	for name := range leases {
		group.Go(func() error {
			lease, err := s.lease(groupCtx, name)
			mutex.Lock()
			defer mutex.Unlock()
			present.Leases[name] = lease
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	present.Now = s.now()
	for i := range rows {
		rows[i].Prove(present)
	}
	return nil
}

// secret reads the metadata of a Secret.
func (s statusReader) secret(ctx context.Context, name string) (status.Secret, error) {
	secret := world.SecretMetadata()
	exists, unknown, err := s.read(ctx, name, secret)
	if !exists {
		return status.Secret{Unknown: unknown}, err
	}
	_, labelled := secret.Labels[contract.LabelProxySecret]
	return status.Secret{Version: secret.ResourceVersion, Labelled: labelled}, nil
}

// lease reads a Lease. One that does not exist has no holder.
func (s statusReader) lease(ctx context.Context, name string) (status.Lease, error) {
	lease := &coordinationv1.Lease{}
	exists, unknown, err := s.read(ctx, name, lease)
	spec := lease.Spec
	if !exists || spec.HolderIdentity == nil || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return status.Lease{Unknown: unknown}, err
	}
	return status.Lease{
		Holder: *spec.HolderIdentity, Renewed: spec.RenewTime.Time,
		Duration: time.Duration(*spec.LeaseDurationSeconds) * time.Second,
	}, nil
}

// read reads an object. unknown is why the user may not, which is no error.
func (s statusReader) read(ctx context.Context, name string, into client.Object) (exists bool, unknown string,
	err error,
) {
	namespace, name, _ := strings.Cut(name, "/")
	switch err := s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into); {
	case apierrors.IsNotFound(err):
		return false, "", nil
	case apierrors.IsForbidden(err):
		return false, "forbidden", nil
	case err != nil:
		return false, "", fmt.Errorf("reading %s/%s: %w", namespace, name, err)
	}
	return true, "", nil
}

// serverClock is the clock of the API server, as its answers show it: that of the user may be wrong. Its methods can be
// called concurrently.
type serverClock struct {
	mutex sync.Mutex
	ahead time.Duration
}

func (c *serverClock) now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return time.Now().Add(c.ahead) //nolint:forbidigo // the clock enters here
}

func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil {
			return response, err //nolint:wrapcheck // it is the transport
		}
		if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			c.mutex.Lock()
			defer c.mutex.Unlock()
			c.ahead = time.Until(at)
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
