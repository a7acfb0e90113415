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

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// ManagementCluster is the State of a management cluster.
type ManagementCluster struct {
	// Cached reads Clusters from a cache, Live from the API server.
	Cached, Live client.Reader
	// Absences remembers Secrets that did not exist a moment ago.
	Absences *lookup.Absences
	// Resolver resolves proxy Secrets.
	Resolver resolve.Resolver
}

// Stored implements State. It only reads the cache, because requests may name any number of Clusters.
func (m ManagementCluster) Stored(ctx context.Context, namespace, name string) (*Stored, error) {
	return m.stored(ctx, m.Cached, client.ObjectKey{Namespace: namespace, Name: name})
}

func (m ManagementCluster) stored(ctx context.Context, reader client.Reader, key client.ObjectKey) (*Stored, error) {
	cluster := &clusterv1.Cluster{}
	err := reader.Get(ctx, key, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // the interface says so
	case err != nil:
		return nil, retry(ctx, err, "reading Cluster "+key.String())
	}
	stored := &Stored{Cluster: intent.ClusterOf(cluster), Labels: cluster.Labels}
	if mayBeEnabled(stored.cluster()) {
		stored.Settings, err = intent.TopologyOf(cluster)
	}
	return stored, err
}

// Values implements State. If the endpoint of the Cluster is not known to the cache it asks the API server: the request
// that waits for the endpoint comes when it is set, and not again when the cache has caught up.
func (m ManagementCluster) Values(ctx context.Context, cluster *Stored, override string) (Values, error) {
	view := cluster.Cluster
	if view.EndpointHost == "" {
		live, err := m.stored(ctx, m.Live, client.ObjectKey{Namespace: view.Namespace, Name: view.Name})
		if err != nil {
			return Values{}, err
		}
		if live != nil {
			view.EndpointHost, view.EndpointPort = live.EndpointHost, live.EndpointPort
		}
	}
	resolution, err := m.resolve(ctx, view, cluster.Settings, override)
	if err != nil {
		return Values{}, err
	}
	return Values{Settings: resolution.Settings, NoProxy: resolution.NoProxy.Value, Complete: resolution.Complete}, nil
}

// Taken implements State.
func (m ManagementCluster) Taken(ctx context.Context, cluster *Stored, secret string) error {
	names := lookup.GeneratedSecrets{Cached: m.Cached, Live: m.Live, Absences: m.Absences}
	why, err := names.Taken(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: secret}, cluster.Name)
	switch {
	case err != nil:
		return retry(ctx, err, "looking for Secret "+cluster.Namespace+"/"+secret)
	case why != "":
		return errors.New(why)
	}
	return nil
}

// Check implements State.
func (m ManagementCluster) Check(ctx context.Context, cluster *Stored, override string) error {
	_, err := m.resolve(ctx, cluster.Cluster, cluster.Settings, override)
	return err
}

func (m ManagementCluster) resolve(ctx context.Context, cluster intent.Cluster, settings intent.Topology,
	override string,
) (resolve.Resolution, error) {
	resolution, err := m.Resolver.Resolve(ctx, settings.ApplyTo(cluster), settings.Options, override)
	if err == nil {
		return resolution, nil
	}
	if len(finding.Of(err)) > 0 {
		return resolution, err
	}
	return resolution,
		retry(ctx, err, fmt.Sprintf("reading the proxy Secret of Cluster %s/%s", cluster.Namespace, cluster.Name))
}

// retry logs an error of the API server, whose text changes, and returns one whose text does not.
func retry(ctx context.Context, err error, operation string) error {
	ctrl.LoggerFrom(ctx).Error(err, "Reading from the API server", "reason", operation)
	return errors.New(operation + ": the API server returned an error; see the manager's log")
}
