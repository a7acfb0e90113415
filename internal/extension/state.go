package extension

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/topology"
)

// ManagementCluster is the State of a management cluster.
type ManagementCluster struct {
	// Cached reads Clusters from a cache, Live from the API server.
	Cached, Live client.Reader
	// Absences remembers Secrets that did not exist a moment ago.
	Absences *source.Absences
	// Resolver resolves proxy Secrets.
	Resolver source.Resolver
}

// Values implements State.
func (m ManagementCluster) Values(ctx context.Context, namespace, name string, settings topology.Settings, override string) (Values, error) {
	cluster, err := m.cluster(ctx, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil {
		return Values{}, err
	}
	resolution, err := m.resolve(ctx, cluster, settings, override)
	if err != nil {
		return Values{}, err
	}
	return Values{Settings: resolution.Settings, NoProxy: resolution.NoProxy.Value, Complete: resolution.Complete}, nil
}

// Taken implements State. It looks for Secrets only for a Cluster that exists and that the product is at work on.
func (m ManagementCluster) Taken(ctx context.Context, namespace, name, secret string) error {
	cluster, key := &clusterv1.Cluster{}, client.ObjectKey{Namespace: namespace, Name: name}
	err := m.Cached.Get(ctx, key, cluster)
	if apierrors.IsNotFound(err) {
		err = m.Live.Get(ctx, key, cluster)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return retry(ctx, err, "reading Cluster "+key.String())
	}
	if _, held := topology.HoldOf(cluster.Annotations); !held && !source.IsEnabled(cluster.Labels) {
		return nil
	}
	names := source.GeneratedSecrets{Cached: m.Cached, Live: m.Live, Absences: m.Absences}
	why, err := names.Taken(ctx, types.NamespacedName{Namespace: namespace, Name: secret}, name)
	switch {
	case err != nil:
		return retry(ctx, err, "looking for Secret "+namespace+"/"+secret)
	case why != "":
		return errors.New(why)
	}
	return nil
}

// Check implements State.
func (m ManagementCluster) Check(ctx context.Context, cluster source.Cluster, settings topology.Settings, override string) error {
	_, err := m.resolve(ctx, cluster, settings, override)
	return err
}

// cluster reads a Cluster. If its endpoint is not known to the cache it asks the API server: the request that waits for
// the endpoint comes once it is there, and not again when the cache has caught up.
func (m ManagementCluster) cluster(ctx context.Context, key client.ObjectKey) (source.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	err := m.Cached.Get(ctx, key, cluster)
	if apierrors.IsNotFound(err) || err == nil && cluster.Spec.ControlPlaneEndpoint.Host == "" {
		err = m.Live.Get(ctx, key, cluster)
	}
	switch {
	case apierrors.IsNotFound(err):
		return source.Cluster{}, fmt.Errorf("reading Cluster %s: it does not exist", key)
	case err != nil:
		return source.Cluster{}, retry(ctx, err, "reading Cluster "+key.String())
	}
	return source.ClusterOf(cluster), nil
}

func (m ManagementCluster) resolve(ctx context.Context, cluster source.Cluster, settings topology.Settings, override string) (source.Resolution, error) {
	resolution, err := m.Resolver.Resolve(ctx, settings.View(cluster), settings.Options, override)
	if err == nil {
		return resolution, nil
	}
	if _, invalid := errors.AsType[*source.InvalidError](err); invalid {
		return resolution, err
	}
	if _, missing := errors.AsType[*source.NotFoundError](err); missing {
		return resolution, err
	}
	return resolution, retry(ctx, err, fmt.Sprintf("reading the proxy Secret of Cluster %s/%s", cluster.Namespace, cluster.Name))
}

// retry logs an error of the API server, whose text changes, and returns one whose text does not.
func retry(ctx context.Context, err error, operation string) error {
	ctrl.LoggerFrom(ctx).Error(err, "Reading from the API server", "reason", operation)
	return errors.New(operation + ": the API server does not answer as it should; the log of the manager says more")
}
